"""Shadow: sources that are deleted, the largest steps, and what cannot be a step."""

from __future__ import annotations

import pytest

from holdfast.core.edge_bounds import (
    OBJECT_MAX,
    SHADOW_BODY_MAX,
    SHADOW_ROWS_MAX,
    SHADOW_STEP_BYTES_MAX,
    SHADOW_VERSION_MAX,
    SOURCE_MAX,
    SOURCE_STATE_MAX,
)
from holdfast.core.errors import InvalidInput, StaleSource
from holdfast.core.shadow import ShadowRead, ShadowStep
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, job
from holdfast.testing.contract.shadowing import (
    SOURCE,
    as_put,
    jobs,
    listed,
    read,
    refused,
    row,
    stamp_of,
    state,
    step,
)


def text(size: int) -> bytes:
    """A text of so many bytes, as JSON."""
    return b'"' + b"x" * (size - 2) + b'"'


# -- deletion --------------------------------------------------------------------------------------


async def test_a_source_without_rows_is_deleted(bench: Bench) -> None:
    """P15: repeating it does nothing; an old step does not bring it back."""
    bench.needs("sources")
    await bench.store.shadow(step("s1", put=(row("1"),)))
    await bench.store.shadow(step("s2", "s1", drop=("1",)))

    last = step("s3", "s2", state=None)
    await bench.store.shadow(last)
    await bench.store.shadow(last)

    assert await stamp_of(bench) is None
    await refused(bench, step("s4", "s3", put=(row("1"),)), StaleSource)
    await bench.store.shadow(step("t1", put=(row("7"),)))
    assert [one.id for one in await listed(bench)] == ["7"]


async def test_a_source_with_rows_is_not_deleted(bench: Bench) -> None:
    """P15: its rows go first, in bounded steps."""
    bench.needs("sources")
    await bench.store.shadow(step("s1", put=(row("1"), row("2"))))

    error = await refused(bench, step("s2", "s1", state=None, drop=("1",)), InvalidInput)

    assert error.facts["field"] == "state"


# -- bounds and bad input --------------------------------------------------------------------------


async def test_a_step_of_the_largest_size_is_stored(bench: Bench) -> None:
    """P15: as many rows and jobs as a step may have."""
    bench.needs("sources")
    size = SHADOW_STEP_BYTES_MAX // SHADOW_ROWS_MAX // 2 - 100
    rows = tuple(
        row(f"{number:04}", body=b'"' + b"r" * (size - 2) + b'"')
        for number in range(SHADOW_ROWS_MAX)
    )
    made = tuple(job(f"j{number}", body=b"p" * size) for number in range(SHADOW_ROWS_MAX))

    await bench.store.shadow(step("s1", put=rows, jobs=made))

    assert len(await listed(bench)) == SHADOW_ROWS_MAX
    assert len(await jobs(bench)) == SHADOW_ROWS_MAX
    await bench.store.shadow(step("s2", "s1", drop=tuple(one.id for one in rows)))
    assert (await read(bench)).sources[0].rows == 0


async def test_the_largest_row_is_stored(bench: Bench) -> None:
    """P15: with names of four bytes a character."""
    bench.needs("sources")
    wide = "😀"
    one = row(
        wide * OBJECT_MAX,
        "=" + wide * (SHADOW_VERSION_MAX - 1),
        body=b'"' + b"x" * (SHADOW_BODY_MAX - 2) + b'"',
    )
    given = step("s1", source=wide * SOURCE_MAX, state=state(1, SOURCE_STATE_MAX), put=(one,))

    await bench.store.shadow(given)

    found = await read(bench, source=wide * SOURCE_MAX, ids=(one.id,))
    assert list(found.rows) == as_put([one], bench.clock.now())
    assert found.sources[0].state == state(1, SOURCE_STATE_MAX)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (step("s1", tenant=""), "tenant"),
        (step("s1", source=""), "source"),
        (step("s1", source="n" * (SOURCE_MAX + 1)), "source"),
        (step("a stamp"), "stamp"),
        (step("s1", "not one"), "expect"),
        (step("s1", state=b"s" * (SOURCE_STATE_MAX + 1)), "state"),
        (step("s1", put=(row(""),)), "id"),
        (step("s1", put=(row("1", ""),)), "version"),
        (step("s1", put=(row("1", number=-1),)), "number"),
        (step("s1", put=(row("1", seen=2**53),)), "seen"),
        (step("s1", put=(row("1", body=b"b" * (SHADOW_BODY_MAX + 1)),)), "body"),
        (step("s1", put=(row("1"), row("1"))), "put"),
        (step("s1", put=(row("1"),), drop=("1",)), "put"),
        (step("s1", put=tuple(map(row, map(str, range(SHADOW_ROWS_MAX + 1))))), "put"),
        (step("s1", jobs=(job("a", tenant=GLOBEX),)), "jobs"),
        (ShadowRead(tenant=ACME, source=SOURCE, limit=SHADOW_ROWS_MAX + 1), "limit"),
        (ShadowRead(tenant=ACME, source=SOURCE, ids=("x",) * (SHADOW_ROWS_MAX + 1)), "ids"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
async def test_what_cannot_be_a_step_is_refused(
    bench: Bench, given: ShadowStep | ShadowRead, field: str
) -> None:
    """P15: by the name of the field."""
    bench.needs("sources")
    with pytest.raises(InvalidInput) as caught:
        await bench.store.shadow(given)
    assert caught.value.facts["field"] == field
    assert await stamp_of(bench) is None
