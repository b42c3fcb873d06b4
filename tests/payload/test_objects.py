"""Sources behind a mapper: the bodies of objects and the jobs for what changed are mapped."""

from __future__ import annotations

from typing import Any

import pytest
from tests.payload.mirror import OWN
from tests.payload.test_through import AWAY, ERASED, Hall

from holdfast.core.errors import KeyUnavailable
from holdfast.core.shadow import ShadowRead
from holdfast.payload.values import Kind
from holdfast.testing.contract.builders import ACME, finding, job
from holdfast.testing.contract.shadowing import SOURCE, listed, row, step


@pytest.fixture
async def hall() -> Any:
    hall = Hall()
    await hall.open()
    yield hall
    await hall.close()


async def stored(hall: Hall) -> list[bytes]:
    """The bodies as the store has them."""
    page = await hall.plain.shadow(ShadowRead(tenant=ACME, source=SOURCE, after="", limit=100))
    return [one.body for one in page.rows]


async def test_objects_and_their_jobs_are_stored_mapped(hall: Hall) -> None:
    """The store has no plain byte of either; both come back. Tombstones carry nothing."""
    rows = (row("1", body=b"secret"), row("2", gone=True))
    await hall.store.shadow(step("s1", put=rows, jobs=(job("made"),)))

    assert await stored(hall) == [OWN + b"terces", b""]
    assert [one.body for one in await listed(hall)] == [b"secret", b""]
    [plain] = (await hall.plain.find(finding())).jobs
    [read] = (await hall.store.find(finding())).jobs
    assert plain.envelope.body.startswith(OWN)
    assert read.envelope == job("made").envelope


@pytest.mark.parametrize("what", [Kind.OBJECT, Kind.PAYLOAD])
async def test_a_step_that_cannot_be_mapped_stores_nothing(hall: Hall, what: Kind) -> None:
    """Neither its rows nor its jobs nor its state."""
    hall.mirror.out[what] = ERASED
    with pytest.raises(type(ERASED)):
        await hall.store.shadow(step("s1", put=(row("1", body=b"x"),), jobs=(job("made"),)))

    assert await stored(hall) == []
    assert not (await hall.plain.find(finding())).jobs
    assert not (await hall.plain.shadow(ShadowRead(tenant=ACME, source=SOURCE))).sources


async def test_an_object_that_cannot_be_read_now_is_not_taken_for_empty(hall: Hall) -> None:
    """The next step would store it so. One whose keys were erased is empty for ever."""
    await hall.store.shadow(step("s1", put=(row("1", body=b"x"),)))
    hall.mirror.back[Kind.OBJECT] = AWAY
    with pytest.raises(KeyUnavailable):
        await listed(hall)

    hall.mirror.back[Kind.OBJECT] = ERASED
    assert [one.body for one in await listed(hall)] == [b""]
