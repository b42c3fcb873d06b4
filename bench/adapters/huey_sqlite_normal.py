"""huey on SQLite with the durability of our NORMAL.

Its own setting knows FULL and OFF only; OFF is less than NORMAL, FULL is more.
"""

from __future__ import annotations

from typing import Any

import probe  # type: ignore[import-not-found,unused-ignore]
from huey import SqliteHuey  # type: ignore[import-not-found,unused-ignore]
from huey.storage import SqliteStorage  # type: ignore[import-not-found,unused-ignore]

ENGINE = "sqlite"
DISTS = ["huey"]
REQUIRES = ["huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0", "uvloop==0.23.0"]
CONFIG = "as huey_sqlite, with synchronous=NORMAL"
WORKER = [
    "{bin}/huey_consumer",
    "adapters.huey_sqlite_normal.huey",
    "-w",
    "2",
    "-k",
    "thread",
    "-n",
    "-q",
    "-d",
    "0.005",
    "-m",
    "0.05",
]


class NormalStorage(SqliteStorage):  # type: ignore[misc,unused-ignore]
    def _create_connection(self) -> Any:
        connection = super()._create_connection()
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection


huey = SqliteHuey("bench", filename=probe.SQLITE, results=False, storage_class=NormalStorage)


@huey.task()  # type: ignore[untyped-decorator,unused-ignore]
def job(p: dict[str, Any]) -> None:
    probe.job(p)


class Client:
    def open(self) -> None:
        pass

    def enqueue(self, p: dict[str, Any]) -> None:
        job(p)

    def close(self) -> None:
        pass
