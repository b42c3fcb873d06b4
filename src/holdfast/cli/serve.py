"""`holdfast serve`: the HTTP service of a store, alone or as several processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from holdfast.cli.common import (
    STORE_VARIABLE,
    Settings,
    chosen_store,
    common_options,
    load_app,
    log_to_stderr,
    work,
)
from holdfast.errors import ConfigError, MissingExtra
from holdfast.limits import LEASE_S_MAX, PROCESSES_MAX

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.service.app import Mount
    from holdfast.service.auth.settings import AuthSettings
    from holdfast.service.service import Service
    from holdfast.service.settings import Limits

logger = logging.getLogger("holdfast")

PORT = 3100

F = TypeVar("F", bound=Callable[..., Any])

AUTH_OPTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "auth",
        "Who may call: none (this machine), keys or jwt. If not said, what the others are for.",
        {"type": click.Choice(["none", "keys", "jwt"])},
    ),
    ("keys", "Mode keys: the file of the keys' hashes (JSON or TOML).", {"metavar": "FILE"}),
    ("jwt-key", "Mode jwt: a secret, or a public key in PEM.", {"metavar": "FILE"}),
    (
        "jwt-alg",
        "What the key is for; of a set, the only algorithm accepted.",
        {"type": click.Choice(["HS256", "RS256", "ES256", "EdDSA"])},
    ),
    (
        "jwks",
        "Mode jwt: where the issuer's set of keys is (http, https, file).",
        {"metavar": "URL"},
    ),
    ("jwt-issuer", "Whose tokens are accepted (iss).", {"metavar": "TEXT"}),
    (
        "jwt-audience",
        "What a token must be for (aud); may be said again.",
        {"metavar": "TEXT", "multiple": True},
    ),
    (
        "jwt-leeway",
        "How far the issuer's clock may be off, in seconds; 30 if not said.",
        {"type": float, "metavar": "SECONDS"},
    ),
    ("tenant-pattern", "What a tenant that a token names must look like.", {"metavar": "REGEX"}),
)
"""Each can be said by the environment too: `--jwt-key` by HOLDFAST_JWT_KEY."""


def _variable(option: str) -> str:
    return "HOLDFAST_" + option.upper().replace("-", "_")


def auth_options(function: F) -> F:
    """The options of AUTH_OPTIONS."""
    for name, text, more in reversed(AUTH_OPTIONS):
        function = click.option(f"--{name}", envvar=_variable(name), help=text, **more)(function)
    return function


@dataclass(frozen=True)
class _Wish:
    host: str
    port: int
    processes: int
    worker: str | None
    insecure: bool
    no_upkeep: bool
    claim_ttl: float
    limit: tuple[str, ...]
    demo: bool
    auth: dict[str, Any] = field(default_factory=dict)
    """What was said of AUTH_OPTIONS."""

    def arguments(self) -> list[str]:
        """The options again, as a child is to get them."""
        found = [f"--host={self.host}", f"--port={self.port}", f"--claim-ttl={self.claim_ttl}"]
        if self.worker is not None:
            found.append(f"--worker={self.worker}")
        found += [f"--limit={one}" for one in self.limit]
        for name in ("insecure", "no_upkeep", "demo"):
            if getattr(self, name):
                found.append("--" + name.replace("_", "-"))
        return found

    def variables(self) -> dict[str, str]:
        """What a child is to get by its environment: `ps` shows arguments, and a URL of keys or a
        path may tell too much.
        """
        found = {}
        for name, value in self.auth.items():
            if value is not None and value != ():
                told = " ".join(value) if isinstance(value, tuple) else str(value)
                found[_variable(name)] = told
        return found


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=PORT,
    envvar="PORT",
    show_default=True,
    help="Where to listen; PORT says it too.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    help="Processes that share the port; one that dies is started again.",
)
@click.option("--worker", metavar="MODULE:APP", help="Run the jobs of this App beside it.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Mode none: listen beyond this machine, and under any name.",
)
@click.option("--no-upkeep", is_flag=True, help="Leave rescue and pruning to workers.")
@click.option(
    "--claim-ttl",
    type=click.FloatRange(0.1, LEASE_S_MAX),
    default=300.0,
    show_default=True,
    envvar="HOLDFAST_CLAIM_TTL",
    metavar="SECONDS",
    help="Firecrawl's wire: after this a popped job can be popped again.",
)
@click.option(
    "--limit",
    multiple=True,
    metavar="NAME=NUMBER",
    help="What one client may cost; may be said again. The page on the service has the names.",
)
@click.option("--demo", is_flag=True, help="A worker and jobs to look at, and what to try.")
@auth_options
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Serve the store over HTTP until SIGTERM or SIGINT."""
    from holdfast.worker import supervise

    said = {name: given.pop(name.replace("-", "_")) for name, _, _ in AUTH_OPTIONS}
    wish = _Wish(**given, auth=said)
    settings: Settings = ctx.obj
    log_to_stderr(settings, child=supervise.CHILD in os.environ)
    try:
        import holdfast.service.run  # noqa: F401
    except ImportError as error:
        raise MissingExtra(what="the service", package=error.name, extra="server") from None
    supervise.follow_parent()
    if wish.processes > 1:
        ctx.exit(_supervise(settings, wish))
    work(_serve(settings, wish))


async def _serve(settings: Settings, wish: _Wish) -> None:
    from holdfast.cli.demo_service import hello, keep_busy
    from holdfast.service.run import listen, serve
    from holdfast.worker.supervise import CHILD

    app = _worker(wish)
    service = _service(settings, wish, app)
    bound = listen(wish.host, wish.port, shared=CHILD in os.environ)
    url = f"http://{wish.host}:{wish.port}"
    if CHILD not in os.environ:
        click.echo(hello(url) if wish.demo else f"serving on {url}", err=True)
    await serve(
        service,
        bound,
        mounts=_mounts(wish),
        worker=app,
        upkeep=not wish.no_upkeep,
        beside=[partial(keep_busy, app)] if wish.demo and app is not None else [],
    )


def _worker(wish: _Wish) -> App | None:
    """The app whose jobs are to run beside the service."""
    if wish.demo:
        if wish.worker is not None:
            raise ConfigError(field="demo", why="brings a worker of its own; leave --worker out")
        return load_app("holdfast.cli.demo_jobs:app")
    return None if wish.worker is None else load_app(wish.worker)


def _mounts(wish: _Wish) -> Sequence[Mount]:
    """What is served beside the native API. Each asks `service.caller` who calls, as that does."""
    from holdfast.service import firecrawl, pages
    from holdfast.service.firecrawl.wire import Settings

    return [firecrawl.mounting(Settings(claim_s=wish.claim_ttl)), pages.dashboard]


def _service(settings: Settings, wish: _Wish, app: App | None) -> Service:
    from holdfast.service.auth.choice import auth_of
    from holdfast.service.run import config_of
    from holdfast.service.service import Service

    auth = auth_of(_auth(wish))
    if app is not None and settings.store is not None:
        app.use_store(settings.store)
    store = chosen_store(settings) if app is None else app.store
    return Service(store, auth, _limits(wish), config=config_of(app))


def _limits(wish: _Wish) -> Limits:
    from holdfast.service.settings import Limits

    said = dict(one.partition("=")[::2] for one in wish.limit)
    try:
        return msgspec.convert(said, Limits, strict=False).checked()
    except msgspec.ValidationError as error:
        raise ConfigError(field="limit", why=str(error)) from None


def _auth(wish: _Wish) -> AuthSettings:
    """Who may call, checked: nobody is let in from elsewhere without authentication by accident."""
    from holdfast.service.auth.settings import AuthSettings, Mode
    from holdfast.service.run import is_loopback

    said = {name.replace("-", "_"): value for name, value in wish.auth.items() if value != ()}
    said["jwt_leeway_s"] = said.pop("jwt_leeway")
    chosen = AuthSettings.of(**said, local_only=not wish.insecure)
    if chosen.auth is Mode.NONE and not is_loopback(wish.host) and not wish.insecure:
        why = f"{wish.host} can be reached from elsewhere, and there is no authentication"
        raise ConfigError(field="host", why=f"{why}: say --auth keys or jwt, or --insecure")
    return chosen


def _supervise(settings: Settings, wish: _Wish) -> int:
    from holdfast.service.auth.choice import auth_of
    from holdfast.worker.supervise import Supervisor, this_command

    if not chosen_store(settings).capabilities.shared:
        raise ConfigError(field="processes", why="this store cannot be shared by processes")
    auth_of(_auth(wish))  # What is wrong is told here, not by each child again and again.
    loudness = {-1: ["-q"], 0: []}.get(settings.loudness, ["-v"])
    arguments = [*loudness, "serve", *wish.arguments()]
    if settings.store is not None:
        # By the environment, not as an argument: a URL may hold a password, and `ps` shows those.
        os.environ[STORE_VARIABLE] = settings.store
    os.environ.update(wish.variables())
    supervisor = Supervisor(this_command(arguments), wish.processes, 30.0)
    click.echo(f"serving on http://{wish.host}:{wish.port}, {wish.processes} processes", err=True)
    return supervisor.run()
