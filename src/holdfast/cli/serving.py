"""Runs `holdfast serve`. Needs the packages of the extra `server`."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial

import click
import msgspec

from holdfast.app import App
from holdfast.cli.common import (
    BLOBS_VARIABLE,
    STORE_VARIABLE,
    Settings,
    chosen_store,
    load_app,
    log_to_stderr,
    with_settings,
    work,
)
from holdfast.cli.demo_service import hello, keep_busy
from holdfast.cli.serve import Wish
from holdfast.config import Config
from holdfast.core.errors import ConfigError
from holdfast.service import firecrawl, pages
from holdfast.service.app import Mount
from holdfast.service.auth.choice import auth_of
from holdfast.service.auth.settings import AuthSettings, Mode
from holdfast.service.firecrawl.wire import Settings as WireSettings
from holdfast.service.run import is_loopback, listen, serve
from holdfast.service.service import Service
from holdfast.service.settings import Limits
from holdfast.worker.supervise import CHILD, Supervisor, follow_parent, this_command

DRAIN_S = 30.0


def start(settings: Settings, wish: Wish) -> int:
    """Serves until a signal, in this process or in children. Returns the exit code."""
    log_to_stderr(settings, child=CHILD in os.environ)
    follow_parent()
    if wish.processes > 1:
        return _supervise(settings, wish)
    work(_serve(settings, wish))
    return 0


async def _serve(settings: Settings, wish: Wish) -> None:
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


def _worker(wish: Wish) -> App | None:
    """The app whose jobs the service runs too."""
    if wish.demo:
        if wish.worker is not None:
            raise ConfigError(field="demo", why="starts its own worker; remove --worker")
        # The demo jobs fail on purpose. Their log lines would hide the commands to try.
        logging.getLogger("holdfast.worker").setLevel(logging.CRITICAL)
        return load_app("holdfast.cli.demo_jobs:app")
    return None if wish.worker is None else load_app(wish.worker)


def _mounts(wish: Wish) -> Sequence[Mount]:
    """What is served beside the native API. All parts use the same authentication; only the
    Firecrawl protocol may be open without it.
    """
    if wish.firecrawl == "off":
        return [pages.dashboard]
    settings = WireSettings(
        claim_s=wish.claim_ttl,
        open=wish.firecrawl == "open",
        local_only=is_loopback(wish.host) and not wish.insecure,
    )
    return [firecrawl.mounting(settings), pages.dashboard]


def _service(settings: Settings, wish: Wish, app: App | None) -> Service:
    auth = auth_of(_auth(wish))
    if app is not None:
        app = with_settings(app, settings)
        return Service(app.store, auth, _limits(wish), config=app.config, blobs=app.app_blobs)
    config = Config() if settings.blobs is None else Config.of(blobs=settings.blobs)
    return Service(chosen_store(settings), auth, _limits(wish), config=config)


def _limits(wish: Wish) -> Limits:
    said = dict(one.partition("=")[::2] for one in wish.limit)
    try:
        return msgspec.convert(said, Limits, strict=False).checked()
    except msgspec.ValidationError as error:
        raise ConfigError(field="limit", why=str(error)) from None


def _auth(wish: Wish) -> AuthSettings:
    """The settings of authentication. Serving other machines without any needs --insecure."""
    said = {name.replace("-", "_"): value for name, value in wish.auth.items() if value != ()}
    said["jwt_leeway_s"] = said.pop("jwt_leeway")
    chosen = AuthSettings.of(**said, local_only=not wish.insecure)
    if chosen.auth is Mode.NONE and not is_loopback(wish.host) and not wish.insecure:
        why = f"{wish.host} can be reached from other machines, and there is no authentication"
        raise ConfigError(field="host", why=f"{why}: use --auth keys, --auth jwt or --insecure")
    return chosen


def _supervise(settings: Settings, wish: Wish) -> int:
    if not chosen_store(settings).capabilities.shared:
        raise ConfigError(field="processes", why="several processes cannot share this store")
    auth_of(_auth(wish))  # Report errors once here, not in each child.
    loudness = {-1: ["-q"], 0: []}.get(settings.loudness, ["-v"])
    arguments = [*loudness, "serve", *wish.arguments()]
    if settings.store is not None:
        # By the environment, not as an argument: a URL may hold a password, and `ps` shows those.
        os.environ[STORE_VARIABLE] = settings.store
    if settings.blobs is not None:
        os.environ[BLOBS_VARIABLE] = settings.blobs
    os.environ.update(wish.variables())
    supervisor = Supervisor(this_command(arguments), wish.processes, DRAIN_S)
    click.echo(f"serving on http://{wish.host}:{wish.port}, {wish.processes} processes", err=True)
    return supervisor.run()
