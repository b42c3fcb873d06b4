"""What a `sqlite://` URL says: which file, and the few things that can be chosen about it."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.errors import ConfigError, did_you_mean

BUSY_S_MAX = 3600.0

_KNOWN = ("synchronous", "events", "busy_s", "create")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    synchronous: str = "full"
    """`full` survives power loss; `normal` may lose the last commits then, never on a crash."""
    events: bool = True
    busy_s: float = 30.0
    """How long to wait for other processes that write to the same file."""
    create: bool = True
    """Whether a missing file is made; off where its absence means a wrong path or mount."""


def parse(url: str) -> Options:
    """The options of a URL. Errors name the setting."""
    parts = urlsplit(url)
    options = Options(path=_path(url))
    known = dict.fromkeys(_KNOWN)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            hint = did_you_mean(name, known)
            why = f"sqlite:// has no option {name!r} (known: {', '.join(_KNOWN)}).{hint}"
            raise ConfigError(field="store", why=why)
        options = msgspec.structs.replace(options, **{name: _READERS[name](value)})
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


def _synchronous(value: str) -> str:
    return _one_of("synchronous", value, ("full", "normal"))


def _events(value: str) -> bool:
    return _one_of("events", value, ("on", "off")) == "on"


def _create(value: str) -> bool:
    return _one_of("create", value, ("on", "off")) == "on"


def _busy_s(value: str) -> float:
    try:
        length = float(value)
    except ValueError:
        length = -1.0
    if not 0 <= length <= BUSY_S_MAX:
        why = f"busy_s is {value!r}, must be seconds from 0 to {BUSY_S_MAX:g}"
        raise ConfigError(field="store", why=why)
    return length


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        hint = did_you_mean(value, allowed)
        why = f"{name} is {value!r}, must be {' or '.join(allowed)}.{hint}"
        raise ConfigError(field="store", why=why)
    return value


_READERS = {
    "synchronous": _synchronous,
    "events": _events,
    "busy_s": _busy_s,
    "create": _create,
}
