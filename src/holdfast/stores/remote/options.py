"""What an `http://` URL says: where the service is, by which token, and how patient to be."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from holdfast.core.bounds import TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import ConfigError, InvalidInput, did_you_mean
from holdfast.core.redact import Redacted
from holdfast.stores.url import seconds, switch

TOKEN_ENV = "HOLDFAST_TOKEN"
"""The variable that holds the token unless the URL says otherwise."""
POOL_MAX = 1000
WAITS_MAX = 10_000
FAILURES_MAX = 1000
HOSTS_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


class Options(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    base: str
    """Scheme, host, port and the path before ours."""
    token: str | None = None
    tenant: str | None = None
    """Every call is for this tenant alone, also with a token that may more."""
    pool: int = 32
    """Connections of one event loop."""
    waits: int = 256
    """Calls that may sleep in the service at a time, besides; more of them poll."""
    timeout_s: float = 10.0
    """How long one verb may take, all its tries together."""
    connect_s: float = 3.0
    breaker: int = 10
    """Failures in a row after which the service is left alone for a while."""
    breaker_s: float = 1.0
    """How long that is."""
    ca: str | None = None
    """A file of certificates that the service's is checked against."""
    verify: bool = True

    @property
    def name(self) -> str:
        """The place, for errors: never with the token."""
        return self.base

    @property
    def in_clear(self) -> bool:
        """Whether the token travels so that others can read it."""
        host = urlsplit(self.base).hostname or ""
        return self.base.startswith("http:") and host not in HOSTS_HERE and self.token is not None

    def __repr__(self) -> str:
        return f"Options({self.base!r}, token={'<hidden>' if self.token else None})"


def parse(url: str) -> Options:
    """The options of a URL. Errors name the setting, never the token."""
    parts = urlsplit(url)
    given: dict[str, Any] = {}
    variable: str | None = None
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "token":
            why = "a token in the query is shown in logs: use token_env, or http://:TOKEN@host"
            raise ConfigError(field="store", why=why)
        if name == "token_env":
            variable = _text(name, value)
        elif name in _READERS:
            given[name] = _READERS[name](name, value)
        else:
            names = ["token_env", *_READERS]
            hint = did_you_mean(name, names)
            why = f"{parts.scheme}:// has no option {name!r} (known: {', '.join(names)}).{hint}"
            raise ConfigError(field="store", why=why)
    return Options(base=_base(parts), token=_token(parts, variable), **given)


def _base(parts: SplitResult) -> str:
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        why = f"names no service, must be as in {parts.scheme}://localhost:3100"
        raise ConfigError(field="store", why=why)
    place = f"[{host}]" if ":" in host else host
    if port is not None:
        place = f"{place}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def _token(parts: SplitResult, variable: str | None) -> str | None:
    """From the URL's login, the variable that it names, or the usual one."""
    login, at, _ = parts.netloc.rpartition("@")
    if at:
        user, colon, password = login.partition(":")
        token: str | None = unquote(password if colon else user)
        where = "the URL's login"
    elif variable is not None:
        token, where = os.environ.get(variable), f"the variable {variable}"
        if not token:
            raise ConfigError(field="store", why=f"{where} is not set, and token_env names it")
    else:
        token, where = os.environ.get(TOKEN_ENV) or None, f"the variable {TOKEN_ENV}"
    if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError(field="store", why=f"{where} holds no token: only ASCII without spaces")
    return token or None


def _whole(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        if not value.isascii() or not value.isdecimal() or not least <= int(value) <= most:
            why = f"{name} is {value!r}, must be a whole number from {least} to {most}"
            raise ConfigError(field="store", why=why)
        return int(value)

    return read


def _text(name: str, value: str) -> str:
    if not value:
        raise ConfigError(field="store", why=f"{name} must not be empty")
    return value


def _tenant(name: str, value: str) -> str:
    try:
        return check_name(name, value, TENANT_MAX)
    except InvalidInput as error:
        raise ConfigError(field="store", why=str(error)) from None


_READERS: dict[str, Callable[[str, str], Any]] = {
    "tenant": _tenant,
    "pool": _whole(1, POOL_MAX),
    "waits": _whole(1, WAITS_MAX),
    "timeout_s": seconds(0.01),
    "connect_s": seconds(0.01),
    "breaker": _whole(1, FAILURES_MAX),
    "breaker_s": seconds(0.01),
    "ca": _text,
    "verify": switch,
}
