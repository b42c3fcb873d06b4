"""Which tests run when, and which of them share a worker. CONTRIBUTING.md shows it as a table.

`./scripts/test` leaves out what is marked slow; `--all` runs everything. A test over several
stores is marked here, by its store's kind: five kinds run everything every time, the others run
what they can break. Each of those shares its rules with one of the five, so that a fault in the
rest of the suite would show there as well.
"""

from __future__ import annotations

import re

import pytest

FULL = frozenset({"memory", "sqlite", "postgres15", "redis", "foundationdb", "remote"})
"""Kinds that run the whole behaviour suite every time. Remote does because it costs seconds."""

TOPICS: dict[str, frozenset[str]] = {
    # PostgreSQL 18 runs the SQL of PostgreSQL 15. A newer server can parse, plan, lock and notify
    # differently, so it runs each function at least once: every verb, the statements that lock
    # or skip rows, the order of rows, wake-ups and migrations. It leaves out the topics that call
    # the same functions with other values: refusals, and the many cases of limits and settings.
    "postgres18": frozenset(
        {
            *("enqueue", "idempotency", "claim", "repeats", "order", "extend", "ack", "cancel"),
            *("change", "upkeep", "keeping", "find", "count", "tallies", "events", "settings"),
            *("hold", "live_limits", "groups", "slots", "pause", "caps", "shares", "explain"),
            *("unreadable", "wait", "life", "shadow", "using"),
        }
    ),
    # Redis Cluster runs the Lua of Redis. A cluster can break what touches keys of more than one
    # slot: several tenants in a call, what is read or swept over all of them, records of the
    # platform, wake-ups over nodes, opening. Rules inside one tenant are in one slot.
    "cluster": frozenset(
        {
            *("enqueue", "claim", "extend", "ack", "cancel", "change", "upkeep", "keeping"),
            *("find", "count", "tallies", "events", "settings", "hold", "caps", "shares", "pause"),
            *("unreadable", "explain", "wait", "tenants", "tiers", "life", "dog_queue"),
            "shadow",
            # Their budget is divided among the slots.
            *("platform", "platform_turns", "live_limits", "limits", "rates"),
        }
    ),
}
"""The topics of the behaviour suite that another kind runs every time; the rest is slow."""

RACES = (FULL | {"cluster"}) - {"remote"}
"""Kinds that race every time. A newer PostgreSQL and a service over memory lock as these do."""

BY_KIND: dict[str, frozenset[str]] = {
    "test_machine.py": FULL,
    "test_races.py": RACES,
    "test_limit_races.py": RACES,
    "test_platform_races.py": RACES,
    "test_batches.py": FULL - {"remote"},
    "test_hostile.py": FULL,
    "test_tokens.py": FULL,
    "test_takeovers.py": frozenset({"memory"}),
    "test_through_contract.py": frozenset({"memory"}),
    "test_encrypted.py": FULL,
}
"""Other tests over every store, by file: the kinds that run them every time."""

OLDEST = "postgres15"
"""Tests of PostgreSQL alone run on this one every time, on the newer ones with --all."""

TIMED = (
    "tests/chaos/",
    "tests/dashboard/test_browser.py",
    "tests/dashboard/test_heavy.py",
    "tests/fuzz/",
    "tests/sources/test_storm.py",
    "tests/test_bench",
    "tests/worker/test_cpu.py",
)
"""Tests that measure time, or that load the machine: one worker runs them one after the other."""

LONG = (
    "tests/stores/test_races.py",
    "tests/stores/test_platform_races.py",
    "tests/stores/test_machine.py",
    "tests/service/test_schema.py",
)
"""Files whose units take long: they are given out first, so that no worker waits for them."""

SEEDS_EACH = 500
"""Thousands of seeds of one test are several units."""

_SEED = re.compile(r"\[(\d+)\]$")
_KIND = re.compile(
    r"[\[-](memory|sqlite|remote|foundationdb(?:-cluster)?|postgres\d+|redis|cluster)\b"
)


def kind_of(nodeid: str) -> str | None:
    """The store or server that a test is for, as its id says."""
    found = _KIND.search(nodeid)
    return found and found.group(1)


def is_slow(item: pytest.Item) -> bool:
    """Whether only --all runs it, for the kind of its store."""
    kind = kind_of(item.nodeid)
    if kind is None or kind.startswith("foundationdb-"):
        return False
    name = item.path.name
    if name == "test_contract.py":
        topic = item.obj.__module__.rpartition(".")[2]  # type: ignore[attr-defined]
        return kind not in FULL and topic not in TOPICS.get(kind, ())
    if name in BY_KIND:
        return kind not in BY_KIND[name]
    alone = item.path.parent.name == "postgres"
    return alone and kind != OLDEST


def unit_of(nodeid: str) -> str:
    """What one worker runs as a whole: a file, its tests of one store, or all timed ones.

    So a server is mostly started by one worker only, and a fixture of a module once.
    """
    path = nodeid.partition("::")[0]
    if path.startswith(TIMED):
        return "timed"
    kind = kind_of(nodeid) if path.startswith("tests/stores/") else None
    seed = _SEED.search(nodeid)
    part = kind or (int(seed.group(1)) // SEEDS_EACH if seed else 0)
    return f"{path} {part}" if part else path


def place_of(item: pytest.Item) -> int:
    """Sorts what takes long to the front."""
    path = item.nodeid.partition("::")[0]
    return 0 if path.startswith(TIMED) else 1 if path in LONG else 2
