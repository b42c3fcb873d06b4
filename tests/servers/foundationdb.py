"""A FoundationDB cluster that somebody else runs: tests get places in it, and clear only those."""

from __future__ import annotations

import importlib
import os
from typing import Any
from urllib.parse import quote

CLUSTER_FILE = "HOLDFAST_TEST_FDB_CLUSTER_FILE"
"""Names the cluster file of a FoundationDB 7.3 in which the tests may write keys of their own."""
KIND = "foundationdb-cluster"

API_VERSION = 730
TIMEOUT_MS = 20_000


class Absent(Exception):
    """No cluster is named."""

    def __init__(self) -> None:
        super().__init__(f"{KIND}: {CLUSTER_FILE} names none")


def is_named() -> bool:
    """Whether the environment names a cluster; without one no test is made for it."""
    return bool(os.environ.get(CLUSTER_FILE))


def file_named() -> str:
    """The cluster file, or Absent."""
    file = os.environ.get(CLUSTER_FILE)
    if not file:
        raise Absent
    return os.path.abspath(file)


def binding() -> Any:
    """The binding, at our API version; one that cannot be used is a failure, not a skip."""
    fdb: Any = importlib.import_module("fdb")
    fdb.api_version(API_VERSION)
    return fdb


class FoundationCluster:
    """Lends places: prefixes that nobody else has."""

    def __init__(self) -> None:
        self._file = file_named()
        self._run = os.urandom(8).hex()
        self._prefixes: list[str] = []

    def lend(self, name: str = "jobs") -> str:
        """The URL of a place that no key has yet, until `clear`."""
        prefix = f"test/{self._run}/{len(self._prefixes)}"
        self._prefixes.append(prefix)
        return f"fdb:///{quote(self._file)}?prefix={prefix}"

    def clear(self) -> None:
        """Deletes all keys of what `lend` gave. Their names are not given again."""
        tr = binding().open(self._file).create_transaction()
        tr.options.set_timeout(TIMEOUT_MS)
        for prefix in self._prefixes:
            start = prefix.encode() + b"\0"
            tr.clear_range(start, start[:-1] + b"\1")
        tr.commit().wait()
        self._run = os.urandom(8).hex()
        self._prefixes.clear()
