"""What the commands share: global options, opening the store and the app, printing errors."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from holdfast.app import App
from holdfast.config import Config
from holdfast.core.bounds import TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import (
    ConfigError,
    HoldfastError,
    JobNotFound,
    ScheduleNotFound,
    SourceNotFound,
    WebhookNotFound,
    did_you_mean,
)
from holdfast.loop import run
from holdfast.mapped_store import offloading
from holdfast.payload.app_blobs import AppBlobs, blobs_by
from holdfast.store import Store
from holdfast.stores import open_store

DEFAULT_STORE = "sqlite:///holdfast.db"
STORE_VARIABLE = "HOLDFAST_STORE"
APP_VARIABLE = "HOLDFAST_APP"
BLOBS_VARIABLE = "HOLDFAST_BLOBS"
KEYS_VARIABLES = ("HOLDFAST_ENCRYPTION_KEYS", "HOLDFAST_ENCRYPTION_REQUIRE")

EXIT_ERROR = 1
EXIT_NOT_FOUND = 3

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Settings:
    """The global options. One given after the command's name overrides one given before it."""

    store: str | None = None
    store_typed: bool = False
    """Whether it was given on the command line (not by the environment)."""
    app: str | None = None
    blobs: str | None = None
    loudness: int = 0
    """Negative: quiet. Positive: verbose."""

    @property
    def quiet(self) -> bool:
        return self.loudness < 0


class Told(click.ClickException):
    """A HoldfastError, printed as `holdfast: <text> [CODE]`. Exit code 1, or 3 for not found."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(told(error))
        if isinstance(error, JobNotFound | ScheduleNotFound | SourceNotFound | WebhookNotFound):
            vars(self)["exit_code"] = EXIT_NOT_FOUND

    def show(self, file: Any = None) -> None:
        click.echo(self.message, err=True)


# -- options ---------------------------------------------------------------------------------------


def _settings(ctx: click.Context) -> Settings:
    return ctx.ensure_object(Settings)


def store_option(envvar: str | None = None) -> Callable[[F], F]:
    """`--store URL`, before or after the command's name."""

    def said(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            settings = _settings(ctx)
            settings.store = value
            settings.store_typed = (
                ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
            )

    text = f"URL of the store. Default: {DEFAULT_STORE}."
    return click.option(
        "--store", metavar="URL", envvar=envvar, expose_value=False, callback=said, help=text
    )


def app_option(envvar: str | None = None) -> Callable[[F], F]:
    """`--app module:attribute`, before or after the command's name."""

    def said(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            _settings(ctx).app = value

    text = "The App with the job types, for example shop.jobs:app."
    return click.option(
        "--app", metavar="MODULE:ATTR", envvar=envvar, expose_value=False, callback=said, help=text
    )


def blobs_option(envvar: str | None = None) -> Callable[[F], F]:
    """`--blobs URL`, before or after the command's name."""

    def said(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            _settings(ctx).blobs = value

    text = "URL of the bucket for blobs. Default: that of the App."
    return click.option(
        "--blobs", metavar="URL", envvar=envvar, expose_value=False, callback=said, help=text
    )


def loudness_options(function: F) -> F:
    """`-q` and `-v`."""

    def quieter(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            _settings(ctx).loudness = -1

    def louder(ctx: click.Context, param: click.Parameter, value: int) -> None:
        if value:
            _settings(ctx).loudness = value

    quiet = click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=quieter, help="Print less."
    )
    verbose = click.option(
        "-v", "--verbose", count=True, expose_value=False, callback=louder, help="Print more."
    )
    return quiet(verbose(function))


def common_options(function: F) -> F:
    """Adds the options that every command accepts after its name."""
    return store_option()(app_option()(blobs_option()(loudness_options(function))))


def tenant_option(text: str) -> Callable[[F], F]:
    """`--tenant NAME`. Without it the default tenant of the app, if it has one."""

    def said(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        return None if value is None else check_name("tenant", value, TENANT_MAX)

    return click.option("--tenant", callback=said, help=f"{text} Default: the app's tenant.")


def chosen_tenant(settings: Settings, given: str | None) -> str:
    """The tenant of a command: the one given, else the default tenant of the app."""
    if given is not None:
        return given
    if settings.app is None:
        raise click.UsageError("Missing option '--tenant'.")
    found = load_app(settings.app).config.tenant
    if found is None:
        raise click.UsageError("Missing option '--tenant': the app has no default tenant.")
    return found


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


# -- store and app ---------------------------------------------------------------------------------


work = run
"""Runs the coroutine of a command and returns its result."""


@contextlib.asynccontextmanager
async def opened(settings: Settings, *, create: bool = False) -> AsyncIterator[Store]:
    """Opens the store that the settings name. A missing store is an error, except with `create`."""
    store = chosen_store(settings, create=create)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def chosen_store(settings: Settings, *, create: bool = True) -> Store:
    """The store that the settings name, closed: --store, else the app's, else the default."""
    if settings.store is None and settings.app is not None:
        return chosen_app(settings).store
    url = settings.store or DEFAULT_STORE
    store = open_store(url if create else existing(url))
    if (keys := _keys()) is not None:
        from holdfast.encryption import encrypted

        store = encrypted(store, keys)
    return offloading(store, chosen_blobs(settings))


def chosen_blobs(settings: Settings) -> AppBlobs | None:
    """The bucket that the settings name: --blobs, else the app's, else none."""
    config = Config() if settings.app is None else load_app(settings.app).config
    if settings.blobs is not None:
        config = msgspec.structs.replace(config, blobs=settings.blobs)
    return blobs_by(config)


def _keys() -> Any:
    """The keys of the environment; None if it names none."""
    if not any(os.environ.get(name) for name in KEYS_VARIABLES):
        return None
    from holdfast.encryption import from_environment  # Most command lines do not need it.

    return from_environment()


def existing(url: str) -> str:
    """The URL with the option that makes opening a missing file fail."""
    if not url.startswith("sqlite:") or "create=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}create=off"


def chosen_app(settings: Settings) -> App:
    """The app that the settings name, on the store that they name."""
    if settings.app is None:
        raise ConfigError(field="app", why="no app: give --app MODULE:ATTR or set HOLDFAST_APP")
    app = load_app(settings.app)
    return with_settings(app, settings)


def with_settings(app: App, settings: Settings) -> App:
    """The app on the store and the bucket that the settings name."""
    if settings.store is not None:
        app.use_store(settings.store)
    if settings.blobs is not None and settings.blobs != app.config.blobs:
        app.use_blobs(settings.blobs)
    return app


def load_app(name: str) -> App:
    """Imports the App at `module:attribute`. Raises ConfigError if it cannot be found."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        why = f"is {name!r}, must be module:attribute, for example shop.jobs:app"
        raise ConfigError(field="app", why=why)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    target: Any = _import(module_name)
    for part in path.split("."):
        if not hasattr(target, part):
            raise ConfigError(field="app", why=_no_attribute(module_name, path, target))
        target = getattr(target, part)
    if not isinstance(target, App):
        why = f"{name!r} is a {type(target).__name__}, not an App"
        raise ConfigError(field="app", why=why)
    if (keys := _keys()) is not None:
        target.use_keys(keys)
    return target


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except HoldfastError:
        raise
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            why = f"there is no module {missing!r} in {os.getcwd()} or on the Python path"
            raise ConfigError(field="app", why=why) from None
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename}:{last.lineno}"
        why = f"importing {name!r} failed at {place}: {type(error).__name__}: {error}"
        raise ConfigError(field="app", why=why) from error


def _no_attribute(module: str, path: str, target: Any) -> str:
    apps = sorted(name for name, value in vars(target).items() if isinstance(value, App))
    hint = did_you_mean(path, apps)
    if not hint and apps:
        hint = f" Its apps: {', '.join(apps)}"
    return f"module {module!r} has no {path!r}.{hint or ' It contains no App.'}"


# -- telling ---------------------------------------------------------------------------------------


def told(error: HoldfastError) -> str:
    """The line for stderr that describes an error."""
    return f"holdfast: {error} [{error.code}]"


def tell(settings: Settings, text: str) -> None:
    """Prints a note for people to stderr, unless --quiet is given."""
    if not settings.quiet:
        click.echo(text, err=True)


def log_to_stderr(settings: Settings, *, child: bool) -> None:
    """Sets up logging to stderr. Lines of a supervised child include its process number."""
    process = " %(process)d" if child else ""
    level = {-1: logging.WARNING, 0: logging.INFO}.get(settings.loudness, logging.DEBUG)
    logging.basicConfig(
        stream=sys.stderr,
        format=f"%(asctime)s{process} %(levelname)-7s %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )
    logging.getLogger("holdfast").setLevel(level)
