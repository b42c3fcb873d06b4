"""What a `redis://` URL says: which servers, and the few things that can be chosen about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from holdfast.core.errors import ConfigError, did_you_mean
from holdfast.stores.url import one_of, seconds, switch

PORT = 6379
SHARDS_MAX = 256
CLUSTER_SHARDS = 16
REPLICAS_MAX = 16
POOL_MAX = 1000

_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[tuple[str, int], ...]
    """Host and port; several where a cluster may be entered by any of them."""
    cluster: bool = False
    tls: bool = False
    username: str | None = None
    password: str | None = None
    db: int = 0
    prefix: str = "hf:"
    """What all keys begin with, so that several stores can share a server."""
    shards: int | None = None
    """Into how many slots tenants are spread; fixed when the store is first opened."""
    events: bool = True
    wait_replicas: int = 0
    """How many replicas must have an enqueue or ack before it is confirmed."""
    wait_s: float = 1.0
    """How long to wait for them."""
    pool: int = 32
    """Connections of one event loop, to each server."""
    timeout_s: float = 10.0
    """How long one call may take."""
    connect_s: float = 3.0
    retry_s: float = 10.0
    """How long a verb is tried again while the server cannot be reached or is not ready."""
    ca: str | None = None
    """A file of certificates that the server's is checked against."""
    verify: bool = True
    migrate: str = "never"
    """`auto` brings a store of an older format to this one when it is opened."""

    @property
    def name(self) -> str:
        """The place, for errors: never with a password."""
        scheme = f"redis{'s' if self.tls else ''}{'+cluster' if self.cluster else ''}"
        places = ",".join(f"{host}:{port}" for host, port in self.nodes)
        return f"{scheme}://{places}" + (f"/{self.db}" if self.db else "")


def parse(url: str) -> Options:
    """The options of a URL. Errors name the setting."""
    parts = urlsplit(url)
    cluster = parts.scheme.endswith("+cluster")
    username, password = _login(parts)
    options = Options(
        nodes=_nodes(parts, cluster),
        cluster=cluster,
        tls=parts.scheme.startswith("rediss"),
        username=username,
        password=password,
        db=_db(parts, cluster),
        shards=None,
    )
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _READERS:
            hint = did_you_mean(name, _READERS)
            known = ", ".join(_READERS)
            why = f"{parts.scheme}:// has no option {name!r} (known: {known}).{hint}"
            raise ConfigError(field="store", why=why)
        options = msgspec.structs.replace(options, **{name: _READERS[name](name, value)})
    return options


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    login, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None, None
    user, colon, password = login.partition(":")
    return unquote(user) or None, unquote(password) if colon else None


def _nodes(parts: SplitResult, cluster: bool) -> tuple[tuple[str, int], ...]:
    places = parts.netloc.rpartition("@")[2] or "localhost"
    if "," in places and not cluster:
        why = "only redis+cluster:// and rediss+cluster:// take several servers"
        raise ConfigError(field="store", why=why)
    return tuple(_node(place, parts.scheme) for place in places.split(","))


def _node(place: str, scheme: str) -> tuple[str, int]:
    try:
        one = urlsplit(f"redis://{place}")
        host, port = one.hostname or "localhost", one.port
    except ValueError:
        why = f"{place!r} is no server, must be host:port, as in {scheme}://localhost:{PORT}"
        raise ConfigError(field="store", why=why) from None
    return host, PORT if port is None else port


def _db(parts: SplitResult, cluster: bool) -> int:
    path = parts.path.strip("/")
    if not path:
        return 0
    if not path.isdecimal() or (cluster and int(path)):
        what = "a cluster has only database 0" if cluster else "the database must be a number"
        raise ConfigError(field="store", why=f"{what}, got {path!r}")
    return int(path)


def _whole(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        if not value.isdecimal() or not least <= int(value) <= most:
            why = f"{name} is {value!r}, must be a whole number from {least} to {most}"
            raise ConfigError(field="store", why=why)
        return int(value)

    return read


def _prefix(name: str, value: str) -> str:
    if not _PREFIX.fullmatch(value):
        why = f"{name} is {value!r}, must be 1 to 64 letters, digits or any of _ . : / -"
        raise ConfigError(field="store", why=why)
    return value


def _text(name: str, value: str) -> str:
    if not value:
        raise ConfigError(field="store", why=f"{name} must not be empty")
    return value


_READERS: dict[str, Callable[[str, str], Any]] = {
    "prefix": _prefix,
    "shards": _whole(1, SHARDS_MAX),
    "events": switch,
    "wait_replicas": _whole(0, REPLICAS_MAX),
    "wait_s": seconds(0.001),
    "pool": _whole(1, POOL_MAX),
    "timeout_s": seconds(0.01),
    "connect_s": seconds(0.01),
    "retry_s": seconds(0.0),
    "ca": _text,
    "verify": switch,
    "migrate": one_of("auto", "never"),
}
