"""The engine beside a dictionary: whatever random transactions do, both show the same rows."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, FDBError
from tests.foundationdb_engine.mutations import ATOMICS, atomic
from tests.foundationdb_engine.spans import Spans

from holdfast.testing import ManualClock

Model = dict[bytes, bytes]


def some_key(draw: random.Random) -> bytes:
    return b"%02d" % draw.randrange(30)


def change(draw: random.Random, tr: Any, model: Model) -> None:
    """One random write, to the transaction and to the model."""
    key, other, value = some_key(draw), some_key(draw), draw.randbytes(draw.randrange(1, 4))
    kind = draw.choice(["set", "clear", "clear_range", "atomic", "atomic"])
    if kind == "set":
        tr[key] = value
        model[key] = value
    elif kind == "clear":
        del tr[key]
        model.pop(key, None)
    elif kind == "clear_range":
        begin, end = sorted((key, other))
        tr.clear_range(begin, end)
        for each in [each for each in model if begin <= each < end]:
            del model[each]
    else:
        name = draw.choice(sorted(ATOMICS))
        getattr(tr, name)(key, value)
        after = atomic(name, model.get(key), value)
        model.pop(key, None)
        if after is not None:
            model[key] = after


def rows(reader: Any, draw: random.Random, model: Model) -> tuple[list[Any], list[Any]]:
    """A random range as the transaction shows it, and as the model does."""
    begin, end = sorted((some_key(draw), some_key(draw)))
    limit, reverse = draw.choice((0, 0, 1, 3)), draw.random() < 0.5
    mode = draw.choice((-2, -1, 1))
    shown = [tuple(row) for row in reader.get_range(begin, end, limit, reverse, mode)]
    kept = sorted(((k, v) for k, v in model.items() if begin <= k < end), reverse=reverse)
    return shown, kept[: limit or None]


@pytest.mark.parametrize("seed", range(40))
def test_a_transaction_shows_the_rows_that_a_dictionary_would(seed: int) -> None:
    """With its own writes over those of many before it, whatever was pruned in between."""
    draw = random.Random(seed)
    clock = ManualClock()
    engine, model = Engine(clock), Model()
    db = engine.database()
    for _ in range(30):
        tr, after = db.create_transaction(), dict(model)
        for _ in range(draw.randrange(12)):
            change(draw, tr, after)
            shown, kept = rows(draw.choice((tr, tr.snapshot)), draw, after)
            assert shown == kept
            key = some_key(draw)
            assert tr[key].value == after.get(key)
        if draw.random() < 0.7:
            tr.commit().wait()
            model = after
        clock.advance(draw.choice((0.0, 0.5, 7.0)))
    assert engine.keys == len(model)


@pytest.mark.parametrize("seed", range(40))
def test_concurrent_transactions_leave_what_some_order_of_them_would(seed: int) -> None:
    """The order of their commits: each read what it would have read right there."""
    draw = random.Random(seed)
    db = Engine(ManualClock()).database()
    model = Model()
    opened: list[tuple[Any, list[Any]]] = []
    codes: set[int] = set()
    for _ in range(200):
        if len(opened) < 5 or draw.random() < 0.5:
            tr = db.create_transaction()
            tr.get_read_version().wait()
            opened.append((tr, []))
        tr, steps = draw.choice(opened)
        steps.append(step(draw, tr))
        if draw.random() < 0.3:
            opened.remove((tr, steps))
            try:
                tr.commit().wait()
            except FDBError as error:
                codes.add(error.code)
            else:
                model = replay(steps, model, wrote=tr.get_committed_version() != -1)
    tr = db.create_transaction()

    assert [tuple(row) for row in tr.get_range(b"", b"\xff")] == sorted(model.items())
    assert codes == {1020}


def step(draw: random.Random, tr: Any) -> tuple[Any, ...]:
    """One read or write of the transaction: what was done, and what it showed."""
    begin, end = sorted((some_key(draw), some_key(draw)))
    kind = draw.choice(["get", "range", "set", "clear_range", "add"])
    if kind == "get":
        return kind, begin, tr[begin].value
    if kind == "range":
        limit = draw.choice((0, 2))
        return kind, begin, end, limit, [tuple(row) for row in tr.get_range(begin, end, limit)]
    if kind == "set":
        value = draw.randbytes(2)
        tr[begin] = value
        return kind, begin, value
    if kind == "clear_range":
        tr.clear_range(begin, end)
        return kind, begin, end
    tr.add(begin, b"\1\0")
    return kind, begin, b"\1\0"


def replay(steps: list[Any], before: Model, *, wrote: bool) -> Model:
    """The steps one after the other on the model; only who wrote must have read just there."""
    model = dict(before)
    for kind, key, *rest in steps:
        if kind == "get" and wrote:
            assert model.get(key) == rest[0]
        elif kind == "range" and wrote:
            kept = sorted((k, v) for k, v in model.items() if key <= k < rest[0])
            assert kept[: rest[1] or None] == rest[2]
        elif kind == "set":
            model[key] = rest[0]
        elif kind == "clear_range":
            model = {k: v for k, v in model.items() if not key <= k < rest[0]}
        elif kind == "add":
            after = atomic("add", model.get(key), rest[0])
            assert after is not None
            model[key] = after
    return model


@pytest.mark.parametrize("seed", range(20))
def test_spans_hold_the_keys_that_a_set_would(seed: int) -> None:
    """After ranges were added and removed in any order; they stay apart from each other."""
    draw = random.Random(seed)
    spans, model = Spans(), set[bytes]()
    every = [b"%02d" % place for place in range(31)]
    for _ in range(50):
        begin, end = sorted(draw.sample(every, 2))
        inside = {key for key in every if begin <= key < end}
        if draw.random() < 0.5:
            spans.add(begin, end)
            model |= inside
        else:
            spans.remove(begin, end)
            model -= inside
        ranges = spans.ranges()

        assert {key for key in every if key in spans} == model
        assert all(one[1] < other[0] for one, other in pairwise(ranges))
        low, high = sorted(draw.sample(every, 2))
        parts = spans.within(low, high)
        assert {k for k in every if any(a <= k < b for a, b in parts)} == {
            k for k in model if low <= k < high
        }
