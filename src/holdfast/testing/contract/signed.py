"""Signed: the event of an operator's action records the author and the reason."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.job import By, Completed, Event, EventKind, Failed
from holdfast.core.scope import ScopeSettings, encode
from holdfast.store import Act, Put, Ref
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, changing, tenant_of

ANN = By("ann", "wrong address")
SIGNED = "ann: wrong address"


async def last(bench: Bench, id: str, kind: EventKind) -> Event:
    return next(event for event in reversed(await bench.history(id)) if event.kind is kind)


async def test_a_cancel_says_who_and_why(bench: Bench) -> None:
    """P14: in the event of each canceled job."""
    await bench.put("a", "b", "c")

    await bench.store.cancel([Ref(ACME, "a"), Ref(ACME, "b")], by=ANN)
    await bench.store.cancel([Ref(ACME, "c")])

    assert (await last(bench, "a", EventKind.CANCELED)).by == SIGNED
    assert (await last(bench, "b", EventKind.CANCELED)).by == SIGNED
    assert (await last(bench, "c", EventKind.CANCELED)).by is None


async def test_a_cancel_of_a_held_job_says_who_and_why(bench: Bench) -> None:
    """P14: whoever holds it."""
    await bench.held("a")

    await bench.store.cancel([Ref(ACME, "a")], by=By("ann"))

    assert (await last(bench, "a", EventKind.CANCELED)).by == "ann"


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (Act.REPRIORITISE, EventKind.CHANGED),
        (Act.RESCHEDULE, EventKind.CHANGED),
        (Act.DELETE, EventKind.DELETED),
    ],
)
async def test_a_change_says_who_and_why(bench: Bench, act: Act, kind: EventKind) -> None:
    """P14: of jobs that wait."""
    await bench.put("a", "b")

    await bench.store.change(changing(act, ids=("a", "b"), priority=3, by=ANN))

    assert (await last(bench, "a", kind)).by == SIGNED
    assert (await last(bench, "b", kind)).by == SIGNED


async def test_a_replay_says_who_and_why(bench: Bench) -> None:
    """P6, P14: at the job that is replayed; the note names the new one."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("no", retryable=False))

    changed = await bench.store.change(changing(Act.REPLAY, ids=("a",), by=ANN))

    event = await last(bench, "a", EventKind.REPLAYED)
    assert (event.by, event.note) == (SIGNED, changed.done[Ref(ACME, "a")])


async def test_a_delete_of_an_ended_job_says_who_and_why(bench: Bench) -> None:
    """P14: the record goes, the fact stays."""
    lease = await bench.held("a")
    await bench.end(lease, Completed())

    await bench.store.change(changing(Act.DELETE, ids=("a",), by=ANN))

    assert (await last(bench, "a", EventKind.DELETED)).by == SIGNED


async def test_a_setting_says_who_and_why(bench: Bench) -> None:
    """P14: the event of a changed scope."""
    bench.needs("scopes")
    name = tenant_of().name
    value = encode(ScopeSettings(max_running=3))

    await bench.store.settings([Put(name, value, 0)], by=ANN)
    await bench.store.settings([Put(name, None, 1)])

    page = await bench.store.events(ACME, 0, PAGE_MAX, job_id=name)
    assert [(event.kind, event.by) for event in page.events] == [
        (EventKind.CONFIGURED, SIGNED),
        (EventKind.CONFIGURED, None),
    ]


async def test_what_workers_do_is_signed_by_nobody(bench: Bench) -> None:
    """P14: an author is a person's."""
    lease = await bench.held("a")
    await bench.end(lease, Completed())

    assert {event.by for event in await bench.history("a")} == {None}


@pytest.mark.parametrize("by", [By(""), By("a" * 257), By("ann", "x" * 257), By("a\nb")])
async def test_an_author_that_cannot_be_kept_is_refused(bench: Bench, by: By) -> None:
    """P15: before anything is done, in every verb that takes one."""
    await bench.put("a")

    with pytest.raises(InvalidInput):
        await bench.store.cancel([Ref(ACME, "a")], by=by)
    with pytest.raises(InvalidInput):
        await bench.store.change(changing(Act.DELETE, ids=("a",), by=by))
    with pytest.raises(InvalidInput):
        await bench.store.settings([Put("a", b"1", 0)], by=by)

    assert await bench.peek("a") is not None
    assert await bench.store.settings(under="a") == []
