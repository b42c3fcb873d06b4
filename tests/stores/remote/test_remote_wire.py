"""The wire: every error of the tree comes back as itself, and bytes stay bytes."""

from __future__ import annotations

import pytest

from holdfast.core.errors import HoldfastError, JobNotFound, StoreError
from holdfast.core.journal import Edge, Entry, EntryKind, Journal, OnFailure, Signal
from holdfast.store import Changed, Enqueued, Page, Ref
from holdfast.stores.remote import wire
from holdfast.testing.contract.builders import job

NAMES = """
schedule
    field why scheme known hint what package extra type owner size max id queue name version
    expected tenant queued retry_after_s codec state reason error timeout_s store found feature node
    method place status table fence found key source webhook bucket
"""
FACTS: dict[str, object] = dict.fromkeys(NAMES.split(), "<fact>")
"""More than any of them has."""


@pytest.mark.parametrize("kind", wire.CLASSES.values(), ids=lambda kind: kind.code)
def test_an_error_comes_back_as_itself(kind: type[HoldfastError]) -> None:
    """Class, facts and words."""
    sent = [Enqueued("a", False, kind(**FACTS))]

    [got] = wire.ENQUEUE.told.decode(wire.encode(sent))

    assert type(got.error) is kind
    assert got.error is not None
    assert (got.error.facts, str(got.error)) == (FACTS, str(kind(**FACTS)))


def test_codes_are_unique_over_the_tree() -> None:
    """Else one would come back as another."""

    def count(kind: type[HoldfastError]) -> int:
        ours = [sub for sub in kind.__subclasses__() if sub.__module__ == "holdfast.core.errors"]
        return 1 + sum(count(sub) for sub in ours)

    assert len(wire.CLASSES) == count(HoldfastError)


def test_an_error_of_another_version_still_tells_its_words() -> None:
    """An unknown code, or facts that its words do not fit."""
    for told in (
        wire.WireError("NEW_CODE", {}, "its words"),
        wire.WireError("INVALID_INPUT", {}, "its words"),
    ):
        error = wire.error_in(told, "http://x")
        assert type(error) is StoreError
        assert "its words" in str(error)


def test_facts_that_are_not_plain_travel_as_text() -> None:
    """An error must never fail to be told."""
    told = wire.error_out(JobNotFound(id="a", more=ValueError("x"), some=(1, 2)))

    assert told.facts == {"id": "a", "more": "x", "some": "(1, 2)"}


def test_a_payload_is_the_same_bytes() -> None:
    """Also those that are no text."""
    new = job("a", body=bytes(range(256)), tags=("x", "y"), run_at=7)

    asked = wire.NewJobs([new], whole=True)
    assert wire.ENQUEUE.asked.decode(wire.encode(asked)) == asked


def test_a_change_keeps_its_mapping() -> None:
    """By full name."""
    changed = Changed({Ref("acme", "a"): "b", Ref("globex", "a"): "c"}, 5)

    told = wire.CHANGE.told.decode(wire.encode(wire.ChangedPairs.of(changed)))
    assert told.changed() == changed


def test_a_journal_is_the_same_bytes() -> None:
    """Of a lease and of a page, whose mapping has references as keys."""
    odd = bytes(range(256))
    entries = [Entry(kind, "n", odd, 7) for kind in EntryKind]
    page = Page([], 5, {Ref("acme", "a"): Journal(entries, [Edge("b", "j", OnFailure.SKIP)])})
    signal = Signal("acme", "a", "n", odd)

    assert wire.FIND.told.decode(wire.encode(wire.FoundPage.of(page))).page() == page
    asked = wire.SIGNAL.asked.decode(wire.encode(wire.Signals([signal])))
    assert asked.signals == [signal]
