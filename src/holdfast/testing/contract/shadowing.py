"""Helpers for tests of shadows: steps of a source, and what they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.edge_bounds import SHADOW_ROWS_MAX
from holdfast.core.errors import HoldfastError
from holdfast.core.shadow import Shadow, ShadowRead, ShadowRow, ShadowStep
from holdfast.core.source import SourcePlan, SourceState, encode
from holdfast.core.spec import JobSpec
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, finding, ids

SOURCE = "consignments"
PLAN = SourcePlan(
    change=JobSpec(type="transfer", codec="json", version=1, body=b"", queue="sync"),
    field="change",
    poll=JobSpec(type="poll/x", codec="json", version=1, body=b"{}", queue="polls"),
)


def state(number: int, pad: int = 0) -> bytes:
    """A state; with a length, padded to that."""
    found = encode(SourceState(born=1, plan=PLAN, number=number))
    return found + b" " * (pad - len(found))


STATE = state(1)


def row(id: str, version: str = "=v1", **fields: Any) -> ShadowRow:
    """A row of the first listing, with a number of 1."""
    return ShadowRow(id, version, **({"number": 1, "seen": 1} | fields))


def step(stamp: str, expect: str = "", **fields: Any) -> ShadowStep:
    """A step of the source of ACME, from one stamp to the next."""
    own: dict[str, Any] = {"tenant": ACME, "source": SOURCE, "state": STATE}
    return ShadowStep(expect=expect, stamp=stamp, **(own | fields))


async def read(bench: Bench, *, tenant: str = ACME, source: str = SOURCE, **how: Any) -> Shadow:
    return await bench.store.shadow(ShadowRead(tenant=tenant, source=source, **how))


async def listed(bench: Bench, tenant: str = ACME, source: str = SOURCE) -> list[ShadowRow]:
    """All rows of a source, which must have less than a page."""
    return list(
        (await read(bench, tenant=tenant, source=source, after="", limit=SHADOW_ROWS_MAX)).rows
    )


async def stamp_of(bench: Bench) -> str | None:
    found = (await read(bench)).sources
    return found[0].stamp if found else None


async def refused(bench: Bench, given: ShadowStep, kind: type[HoldfastError]) -> HoldfastError:
    """The error of a step that must change nothing."""
    before = await read(bench, after="", limit=SHADOW_ROWS_MAX), await jobs(bench)
    with pytest.raises(kind) as caught:
        await bench.store.shadow(given)
    after = await read(bench, after="", limit=SHADOW_ROWS_MAX), await jobs(bench)
    assert after == before
    return caught.value


async def jobs(bench: Bench, tenant: str = ACME) -> list[str]:
    """The ids of all jobs of a tenant, in order."""
    found = await bench.store.find(finding(tenant, newest_first=False, limit=PAGE_MAX))
    return ids(found.jobs)


def as_put(rows: Sequence[ShadowRow], at: int) -> list[ShadowRow]:
    return [
        ShadowRow(one.id, one.version, one.number, one.seen, one.gone, one.body, at) for one in rows
    ]
