"""A private PostgreSQL."""

from __future__ import annotations

import itertools
import signal
from typing import ClassVar

import psycopg
from tests.servers.binaries import Install
from tests.servers.process import Server
from tests.servers.spare import Spare

ADMIN = "postgres"
"""The superuser, for faults and cleaning."""
USER = "holdfast"
"""Owns the database and has no other rights, as in production."""
DATABASE = "holdfast_test"
DROPS_EACH = 20
"""Schemas dropped in one transaction; every table in it takes a lock."""
CUT_MS = 10_000

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
max_locks_per_transaction = 256
recovery_init_sync_method = syncfs
# In the data folder, so that a kill leaves nothing in /dev/shm.
dynamic_shared_memory_type = mmap
timezone = 'UTC'
log_timezone = 'UTC'
"""


Connection = psycopg.Connection[tuple[object, ...]]


class Postgres(Server):
    """One server with one database. Anybody on the loopback may come in: it is short-lived."""

    gently: ClassVar = signal.SIGINT

    def __init__(
        self, install: Install, *, fsync: bool = True, settings: dict[str, str] | None = None
    ) -> None:
        super().__init__(install)
        self.kind = f"postgres{install.major}"  # type: ignore[misc]
        self._settings = {"fsync": "on" if fsync else "off", **(settings or {})}
        self._numbers = itertools.count(1)
        self._schemas: list[str] = []
        self._lent: list[str] = []
        self._spare = Spare()
        self._kept: Connection | None = None

    @property
    def url(self) -> str:
        """Of the database, without a schema."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def admin_url(self) -> str:
        """The same for the superuser."""
        return f"postgresql://{ADMIN}@127.0.0.1:{self.port}/{DATABASE}"

    def fresh(self, name: str = "jobs") -> str:
        """The URL of a schema that does not exist yet, until `clear`."""
        word = "".join(letter if letter.isalnum() else "_" for letter in name.lower())
        schema = f"hf_{next(self._numbers)}_{word}"[:60]
        self._schemas.append(schema)
        return f"{self.url}?migrate=auto&schema={schema}"

    def lend(self, name: str = "jobs") -> str:
        """As `fresh`, but an earlier test may have used the schema: it exists, as if just made."""
        schema = self._spare.take(self._admin())
        if schema is None:
            url = self.fresh(name)
            schema = self._schemas.pop()
        else:
            url = f"{self.url}?migrate=auto&schema={schema}"
        self._lent.append(schema)
        return url

    def clear(self) -> None:
        """Drops all that `fresh` gave, and takes back what `lend` gave."""
        self.ensure()
        connection = self._admin()
        self._schemas += self._spare.keep(self._lent, connection, self.url)
        self._lent.clear()
        while self._schemas:
            names = self._schemas[:DROPS_EACH]
            listed = psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, names))
            drop = psycopg.sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(listed)
            try:
                connection.execute(drop)
            except psycopg.errors.LockNotAvailable:  # somebody left a transaction open
                _cut(connection)
                connection.execute(drop)
            del self._schemas[:DROPS_EACH]

    def _admin(self) -> Connection:
        """One that stays, so that a test does not wait for a new backend twice."""
        try:
            if self._kept is not None:
                self._kept.execute("SELECT")
        except psycopg.OperationalError:  # a test cut it
            self._forget()
        if self._kept is None:
            self._kept = self.connect()
            self._kept.execute("SET lock_timeout = '1s'")
        return self._kept

    def _forget(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _end(self) -> None:
        self._forget()
        super()._end()

    def connect(self, database: str = DATABASE) -> Connection:
        """As the superuser; each statement commits by itself."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=ADMIN,
            dbname=database,
            autocommit=True,
            connect_timeout=10,
        )

    def cut(self) -> None:
        with self.connect() as connection:
            _cut(connection)

    def start(self) -> None:
        first = self._folder is None
        super().start()
        if first:
            with self.connect("postgres") as connection:
                connection.execute(f"CREATE ROLE {USER} LOGIN")
                connection.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}")

    def _prepare(self) -> None:
        data = self.folder / "data"
        program = str(self.programs / "initdb")
        words = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run([program, "-D", str(data), "-U", ADMIN, *words])
        given = "".join(f"{name} = {value}\n" for name, value in self._settings.items())
        with (data / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS + given)

    def _command(self) -> list[str]:
        program = str(self.programs / "postgres")
        return [program, "-D", str(self.folder / "data"), "-p", str(self.port)]

    def _ready(self) -> bool:
        """By its lock file: one left by a killed server names another process."""
        lock = self.folder / "data" / "postmaster.pid"
        try:
            lines = lock.read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"


def _cut(connection: Connection) -> None:
    """All but this one."""
    connection.execute(
        "SELECT count(pg_terminate_backend(pid, %s)) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        [CUT_MS],
    )
