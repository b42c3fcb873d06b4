"""What a `sqlite://` URL says: which file, and the few things that can be chosen about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.core.errors import ConfigError, did_you_mean
from holdfast.stores.url import one_of, seconds, switch

BUSY_S_MAX = 3600.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    synchronous: str = "full"
    """`full` survives power loss; `normal` may lose the last commits then, never on a crash."""
    events: bool = True
    busy_s: float = 30.0
    """How long to wait for other processes that write to the same file."""
    create: bool = True
    """Whether a missing file is made; off where its absence means a wrong path or mount."""
    migrate: str = "auto"
    """`auto` brings an older schema up to date at open; `never` refuses it instead."""


def parse(url: str) -> Options:
    """The options of a URL. Errors name the setting."""
    parts = urlsplit(url)
    options = Options(path=_path(url))
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _READERS:
            hint = did_you_mean(name, _READERS)
            why = f"sqlite:// has no option {name!r} (known: {', '.join(_READERS)}).{hint}"
            raise ConfigError(field="store", why=why)
        options = msgspec.structs.replace(options, **{name: _READERS[name](name, value)})
    return options


def _path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc:
        why = f"a path follows three slashes: sqlite:///{parts.netloc}{parts.path}, got {url!r}"
        raise ConfigError(field="store", why=why)
    if parts.fragment:
        raise ConfigError(field="store", why=f"write '#' in a path as %23, got {url!r}")
    path = unquote(parts.path[1:])
    if path in ("", ":memory:"):
        why = (
            "sqlite:// needs a file, as in sqlite:///jobs.db or sqlite:////var/lib/jobs.db; "
            "for a queue that lives in memory use memory://"
        )
        raise ConfigError(field="store", why=why)
    if "\0" in path:
        raise ConfigError(field="store", why="a path cannot contain a zero byte")
    return path


_READERS: dict[str, Callable[[str, str], Any]] = {
    "synchronous": one_of("full", "normal"),
    "events": switch,
    "busy_s": seconds(0.0, BUSY_S_MAX),
    "create": switch,
    "migrate": one_of("auto", "never"),
}
