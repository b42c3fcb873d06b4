"""`holdfast serve`: serve a store over HTTP, with one or several processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from holdfast.cli.common import Settings, common_options
from holdfast.core.bounds import LEASE_S_MAX, PROCESSES_MAX
from holdfast.core.errors import MissingExtra

PORT = 3100

F = TypeVar("F", bound=Callable[..., Any])

AUTH_OPTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "auth",
        "Authentication: none (this machine only), keys or jwt. Default: from the other options.",
        {"type": click.Choice(["none", "keys", "jwt"])},
    ),
    ("keys", "Mode keys: file with the hashes of the keys (JSON or TOML).", {"metavar": "FILE"}),
    ("jwt-key", "Mode jwt: secret, or public key in PEM.", {"metavar": "FILE"}),
    (
        "jwt-alg",
        "Algorithm of the key; with --jwks, the only algorithm accepted.",
        {"type": click.Choice(["HS256", "RS256", "ES256", "EdDSA"])},
    ),
    (
        "jwks",
        "Mode jwt: URL of the issuer's key set (http, https, file).",
        {"metavar": "URL"},
    ),
    ("jwt-issuer", "Required issuer of tokens (iss).", {"metavar": "TEXT"}),
    (
        "jwt-audience",
        "Accepted audience of tokens (aud). Repeatable.",
        {"metavar": "TEXT", "multiple": True},
    ),
    (
        "jwt-leeway",
        "Allowed clock difference to the issuer, in seconds. Default: 30.",
        {"type": float, "metavar": "SECONDS"},
    ),
    (
        "jwt-sub-tenant",
        "Use the claim sub as the tenant of a token that names no tenant.",
        {"is_flag": True, "default": None},
    ),
    (
        "tenant-pattern",
        "Regular expression that the tenant in a token must match.",
        {"metavar": "REGEX"},
    ),
)
"""Each option also has an environment variable: `--jwt-key` is HOLDFAST_JWT_KEY."""


def _variable(option: str) -> str:
    return "HOLDFAST_" + option.upper().replace("-", "_")


def auth_options(function: F) -> F:
    """Adds the options of AUTH_OPTIONS."""
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
    """The given values of AUTH_OPTIONS."""

    def arguments(self) -> list[str]:
        """The options as command-line arguments for a child process."""
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
        """Options passed to a child by its environment. `ps` shows arguments, and these may contain
        secrets.
        """
        found = {}
        for name, value in self.auth.items():
            if value is not None and value != ():
                told = " ".join(value) if isinstance(value, tuple) else str(value)
                found[_variable(name)] = told
        return found


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=PORT,
    envvar="PORT",
    show_default=True,
    help="Port to listen on; also set by PORT.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    help="Number of processes that share the port. A process that dies is restarted.",
)
@click.option("--worker", metavar="MODULE:APP", help="Also run the jobs of this App.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Mode none: allow other machines and any Host header.",
)
@click.option("--no-upkeep", is_flag=True, help="Do not rescue and prune jobs; workers do it.")
@click.option(
    "--firecrawl",
    type=click.Choice(["on", "off", "open"]),
    default="on",
    show_default=True,
    envvar="HOLDFAST_FIRECRAWL",
    help="Firecrawl protocol: on (same authentication), off, or open (no token needed).",
)
@click.option(
    "--claim-ttl",
    type=click.FloatRange(0.1, LEASE_S_MAX),
    default=300.0,
    show_default=True,
    envvar="HOLDFAST_CLAIM_TTL",
    metavar="SECONDS",
    help="Firecrawl protocol: seconds after which a popped job can be popped again.",
)
@click.option(
    "--limit",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Change a limit on what one client may use (see docs/service). Repeatable.",
)
@click.option(
    "--demo", is_flag=True, help="Run a demo worker with demo jobs, and print commands to try."
)
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
