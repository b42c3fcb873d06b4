"""What `holdfast doctor` checks of a FoundationDB store: its client, its cluster, its format."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.finding import Finding, Level
from holdfast.store import Store
from holdfast.stores.foundationdb import binding
from holdfast.stores.foundationdb.errors import code_of, ours
from holdfast.stores.foundationdb.layout import FORMAT
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.store import FoundationStore

STATUS = b"\xff\xff/status/json"
"""The special key of the cluster's status."""


async def examine(store: Store) -> list[Finding]:
    """Looks at an open store."""
    assert isinstance(store, FoundationStore), "operate.examine picks the doctor by the URL"
    found = [Finding(Level.OK, "format", f"version {FORMAT}")]
    try:
        step = await store._open().step()
    except Exception as error:
        fault = ours(error, store.options.name)
        if not isinstance(fault, HoldfastError):
            raise
        return [*found, Finding(Level.BAD, "cluster", str(fault))]
    words = f"answers; its version is {step.at.version:,}"
    return [*found, _place(store, step), Finding(Level.OK, "cluster", words), await _health(step)]


def _place(store: FoundationStore, step: Step) -> Finding:
    """The prefix of the installation's keys, for the tools of the cluster."""
    options, begins = store.options, f"keys begin with {step.keys.prefix!r}"
    if options.prefix is not None:
        return Finding(Level.OK, "prefix", begins)
    return Finding(Level.OK, "directory", f"{options.directory}: {begins}")


async def _health(step: Step) -> Finding:
    try:
        return _status(await binding.get(step.tr, STATUS))
    except Exception as error:
        if code_of(error) is None:
            raise
        return Finding(Level.WARNING, "health", f"the cluster cannot be asked for it ({error})")


def _status(text: bytes | None) -> Finding:
    """The health that the cluster reports."""
    if text is None:
        return Finding(Level.WARNING, "health", "the cluster tells nothing about itself")
    status = msgspec.json.decode(text)
    database = status.get("client", {}).get("database_status", {})
    if database.get("healthy"):
        return Finding(Level.OK, "health", "healthy, and every copy of the data is there")
    if database.get("available"):
        return Finding(
            Level.WARNING, "health", "available, but not all copies of the data are there"
        )
    return Finding(Level.BAD, "health", "the database is not available")
