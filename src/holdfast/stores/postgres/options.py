"""What a `postgresql://` URL says: which server and database, and what can be chosen about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from holdfast.core.errors import ConfigError, did_you_mean
from holdfast.stores.url import one_of, seconds_above_zero, switch

CONNECTIONS_MAX = 1000

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")

# What asyncpg, as libpq, reads from the query itself.
_DRIVER = frozenset(
    {
        "host", "port", "user", "password", "passfile", "dbname", "database", "sslmode", "sslcert",
        "sslkey", "sslrootcert", "sslcrl", "sslpassword", "ssl_min_protocol_version",
        "ssl_max_protocol_version", "sslnegotiation", "target_session_attrs", "krbsrvname",
        "gsslib", "service", "servicefile", "application_name",
    }
)  # fmt: skip


class Options(msgspec.Struct, frozen=True, kw_only=True):
    dsn: str
    """What the driver gets: the URL without our own options."""
    place: str
    """For messages: host, port, database and schema, never the password."""
    schema: str = "holdfast"
    connections: int = 8
    """At most, for each event loop of a process."""
    notify: bool = True
    """Whether sleepers of other processes are woken by LISTEN and NOTIFY."""
    prepared: bool = True
    """Off behind a pooler that gives out connections by transaction."""
    events: bool = True
    bloom: bool = False
    """Whether the process remembers which keys it has seen, and takes others without a look."""
    timeout_s: float = 15.0
    """How long one statement may take."""
    retry_s: float = 5.0
    """How long a lost connection is tried again before the call fails."""
    migrate: str = "never"
    """`auto`: who opens the store brings its schema to the version of this library."""

    @property
    def channel(self) -> str | None:
        """What notifications are sent by."""
        return f"holdfast_{self.schema}" if self.notify else None


def parse(url: str) -> Options:
    """The options of a URL. Errors name the setting."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(field="store", why=f"the URL cannot be read: {error}") from None
    own: dict[str, Any] = {}
    driver: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _READERS:
            own[name] = _READERS[name](name, value)
        elif name in _DRIVER:
            driver.append((name, value))
        else:
            known = sorted([*_READERS, *_DRIVER])
            hint = did_you_mean(name, known)
            ours = ", ".join(sorted(_READERS))
            why = f"postgresql:// has no option {name!r} (ours: {ours}).{hint}"
            raise ConfigError(field="store", why=why)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(driver), ""))
    given = dict(driver)
    server = f"{host or given.get('host', 'localhost')}:{port or given.get('port', 5432)}"
    database = parts.path.lstrip("/") or given.get("dbname") or given.get("database") or ""
    place = f"postgresql://{server}/{database} (schema {own.get('schema', 'holdfast')})"
    return Options(dsn=dsn, place=place, **own)


def _schema(name: str, value: str) -> str:
    if not _SCHEMA.fullmatch(value) or value.startswith("pg_"):
        why = f"{name} is {value!r}, must be lower-case letters, digits and underscores"
        raise ConfigError(field="store", why=why)
    return value


def _connections(name: str, value: str) -> int:
    if not (value.isdecimal() and 1 <= int(value) <= CONNECTIONS_MAX):
        why = f"{name} is {value!r}, must be a whole number from 1 to {CONNECTIONS_MAX}"
        raise ConfigError(field="store", why=why)
    return int(value)


_READERS: dict[str, Callable[[str, str], Any]] = {
    "schema": _schema,
    "connections": _connections,
    "notify": switch,
    "prepared": switch,
    "events": switch,
    "bloom": switch,
    "timeout_s": seconds_above_zero,
    "retry_s": seconds_above_zero,
    "migrate": one_of("auto", "never"),
}
