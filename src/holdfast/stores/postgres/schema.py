"""The SQL files of the store: the schema by number, the functions and views as they are now."""

from __future__ import annotations

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable

from holdfast.stores.postgres.layout import SCHEMA_VERSION

_SQL = resources.files("holdfast.stores.postgres") / "sql"


def _texts(folder: Traversable) -> list[tuple[str, str]]:
    """The files of a folder in the order of their names."""
    files = sorted((each.name, each) for each in folder.iterdir() if each.name.endswith(".sql"))
    return [(name, each.read_text("utf-8")) for name, each in files]


def schema_files() -> list[tuple[int, str]]:
    """Tables, indexes and types, by the schema version that each file leads to."""
    return [(int(name[:3]), text) for name, text in _texts(_SQL / "schema")]


def upgrade_file(version: int) -> str | None:
    """What brings a schema of this version to the first one of `schema_files`, if anything does."""
    return dict(_texts(_SQL / "upgrade")).get(f"{version:03}.sql")


FUNCTIONS = "\n".join(text for _, text in _texts(_SQL / "functions"))
"""The definition of every function."""

VIEWS = (_SQL / "views.sql").read_text("utf-8")

HASH = hashlib.sha256((FUNCTIONS + VIEWS).encode()).hexdigest()[:12]
"""Stored in the schema: other functions than these have another hash."""

FORMAT = f"{SCHEMA_VERSION}.{HASH}"
"""What every statement expects to find: the version of the schema, and the functions in it."""
