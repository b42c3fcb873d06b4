"""The options of an `fdb://` URL.

fdb://                                the file of FDB_CLUSTER_FILE, or the system's
fdb:////etc/foundationdb/fdb.cluster  a path follows three slashes, this one is absolute
fdb://?cluster_file=/etc/fdb.cluster&directory=acme/jobs
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from holdfast.core.errors import ConfigError, did_you_mean
from holdfast.stores.url import one_of, seconds, seconds_above_zero, switch

CLUSTER_FILE = "FDB_CLUSTER_FILE"

_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    cluster_file: str | None = None
    """None is the client library's own default: the system's file."""
    directory: str = "holdfast"
    """The path of the installation's directory, so that several can share a cluster."""
    prefix: str | None = None
    """What all keys begin with, where that is not a directory's to say."""
    events: bool = True
    timeout_s: float = 5.0
    """How long one transaction may take; the engine itself allows about 5 s."""
    retry_s: float = 20.0
    """How long a verb is repeated after conflicts or while the cluster does not answer."""
    grace_s: float = 60.0
    """How long past its deadline by the wall clock a lease may be taken by that alone: twice the
    difference that the clocks of two hosts may have, at least."""
    skew_s: float = 30.0
    """How much the clocks of two hosts may differ."""
    migrate: str = "never"
    """Whether `open` brings an older installation to the newest format: `auto` or `never`."""

    @property
    def name(self) -> str:
        """The store, as errors name it."""
        file = f"/{quote(self.cluster_file)}" if self.cluster_file else ""
        where = f"directory={self.directory}" if self.prefix is None else f"prefix={self.prefix}"
        return f"fdb://{file}?{where}"

    @property
    def path(self) -> tuple[str, ...]:
        """The directory as a path of names."""
        return tuple(self.directory.split("/"))


def parse(url: str) -> Options:
    """The options of a URL. Errors name the setting."""
    parts = urlsplit(url)
    if parts.netloc:
        why = f"a path follows three slashes, so an absolute one begins with four: got {url!r}"
        raise ConfigError(field="store", why=why)
    path = unquote(parts.path[1:]) or os.environ.get(CLUSTER_FILE) or None
    options = Options(cluster_file=path)
    given = parse_qsl(parts.query, keep_blank_values=True)
    if {"directory", "prefix"} <= {name for name, _ in given}:
        raise ConfigError(field="store", why="fdb:// has a directory or a prefix, not both")
    for name, value in given:
        if name not in _READERS:
            hint = did_you_mean(name, _READERS)
            why = f"fdb:// has no option {name!r} (known: {', '.join(_READERS)}).{hint}"
            raise ConfigError(field="store", why=why)
        options = msgspec.structs.replace(options, **{name: _READERS[name](name, value)})
    if options.grace_s < 2 * options.skew_s:
        why = f"grace_s is {options.grace_s:g}, must be at least twice skew_s ({options.skew_s:g})"
        raise ConfigError(field="store", why=why)
    return options


def _file(name: str, value: str) -> str:
    if not value:
        raise ConfigError(field="store", why=f"{name} must not be empty")
    return value


def _directory(name: str, value: str) -> str:
    if not all(value.split("/")):
        raise ConfigError(field="store", why=f"{name} is {value!r}, must be names between slashes")
    return _prefix(name, value)


def _prefix(name: str, value: str) -> str:
    if not _PREFIX.fullmatch(value):
        why = f"{name} is {value!r}, must be 1 to 64 letters, digits or any of _.:/-"
        raise ConfigError(field="store", why=why)
    return value


_READERS: dict[str, Callable[[str, str], Any]] = {
    "cluster_file": _file,
    "directory": _directory,
    "prefix": _prefix,
    "events": switch,
    "timeout_s": seconds_above_zero,
    "retry_s": seconds_above_zero,
    "grace_s": seconds_above_zero,
    "skew_s": seconds(0.0),
    "migrate": one_of("auto", "never"),
}
