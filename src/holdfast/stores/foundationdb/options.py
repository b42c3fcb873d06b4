"""What an `fdb://` URL says: which cluster, and the few things that can be chosen about it.

fdb://                                the file of FDB_CLUSTER_FILE, or the system's
fdb:////etc/foundationdb/fdb.cluster  an absolute path follows three slashes
fdb://?cluster_file=/etc/fdb.cluster&prefix=jobs
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.errors import ConfigError, did_you_mean

CLUSTER_FILE = "FDB_CLUSTER_FILE"
SECONDS_MAX = 3600.0

_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    cluster_file: str | None = None
    """None is the client library's own default: the system's file."""
    prefix: str = "holdfast"
    """What all keys begin with, so that several installations can share a cluster."""
    events: bool = True
    timeout_s: float = 5.0
    """How long one transaction may take; the engine itself allows about 5 s."""
    retry_s: float = 20.0
    """How long a verb is tried again while others are in the way or the cluster is away."""
    grace_s: float = 60.0
    """How long past its deadline by the wall clock a lease may be taken by that alone: twice the
    difference that the clocks of two hosts may have."""

    @property
    def name(self) -> str:
        """The place, for errors."""
        return f"fdb://{self.cluster_file or ''}?prefix={self.prefix}"


def parse(url: str) -> Options:
    """The options of a URL. Errors name the setting."""
    parts = urlsplit(url)
    if parts.netloc:
        why = f"a path follows three slashes: fdb:///{parts.netloc}{parts.path}, got {url!r}"
        raise ConfigError(field="store", why=why)
    path = unquote(parts.path[1:]) or os.environ.get(CLUSTER_FILE) or None
    options = Options(cluster_file=path)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _READERS:
            hint = did_you_mean(name, _READERS)
            why = f"fdb:// has no option {name!r} (known: {', '.join(_READERS)}).{hint}"
            raise ConfigError(field="store", why=why)
        options = msgspec.structs.replace(options, **{name: _READERS[name](name, value)})
    return options


def _file(name: str, value: str) -> str:
    if not value:
        raise ConfigError(field="store", why=f"{name} must not be empty")
    return value


def _prefix(name: str, value: str) -> str:
    if not _PREFIX.fullmatch(value):
        why = f"{name} is {value!r}, must be 1 to 64 letters, digits or any of _.:/-"
        raise ConfigError(field="store", why=why)
    return value


def _on(name: str, value: str) -> bool:
    if value not in ("on", "off"):
        hint = did_you_mean(value, ("on", "off"))
        raise ConfigError(field="store", why=f"{name} is {value!r}, must be on or off.{hint}")
    return value == "on"


def _seconds(name: str, value: str) -> float:
    try:
        length = float(value)
    except ValueError:
        length = -1.0
    if not 0 < length <= SECONDS_MAX:
        why = f"{name} is {value!r}, must be seconds, above 0 and up to {SECONDS_MAX:g}"
        raise ConfigError(field="store", why=why)
    return length


_READERS: dict[str, Callable[[str, str], Any]] = {
    "cluster_file": _file,
    "prefix": _prefix,
    "events": _on,
    "timeout_s": _seconds,
    "retry_s": _seconds,
    "grace_s": _seconds,
}
