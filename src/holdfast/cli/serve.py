"""`holdfast serve`: the HTTP service of a store, alone or as several processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from holdfast.cli.common import Settings, common_options
from holdfast.errors import MissingExtra
from holdfast.limits import LEASE_S_MAX, PROCESSES_MAX

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
    (
        "jwt-sub-tenant",
        "A token that names no tenant is for the one that its sub names.",
        {"is_flag": True, "default": None},
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
class Wish:
    """The options as given."""

    host: str
    port: int
    processes: int
    worker: str | None
    insecure: bool
    no_upkeep: bool
    claim_ttl: float
    limit: tuple[str, ...]
    demo: bool
    firecrawl: str
    auth: dict[str, Any] = field(default_factory=dict)
    """What was said of AUTH_OPTIONS."""

    def arguments(self) -> list[str]:
        """The options again, as a child is to get them."""
        found = [f"--host={self.host}", f"--port={self.port}", f"--claim-ttl={self.claim_ttl}"]
        found.append(f"--firecrawl={self.firecrawl}")
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
    "--firecrawl",
    type=click.Choice(["on", "off", "open"]),
    default="on",
    show_default=True,
    envvar="HOLDFAST_FIRECRAWL",
    help="Firecrawl's wire: behind the same authentication, not there, or open without a token.",
)
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
    said = {name: given.pop(name.replace("-", "_")) for name, _, _ in AUTH_OPTIONS}
    wish = Wish(**given, auth=said)
    settings: Settings = ctx.obj
    try:
        from holdfast.cli import serving
    except ImportError as error:
        raise MissingExtra(what="the service", package=error.name, extra="server") from None
    ctx.exit(serving.start(settings, wish))
