"""The model of joins: what the end of a job does to those that await it (P17).

Jobs that one call ends have no order among themselves: a store may follow their edges in any. Where
the order decides what becomes of a waiting job, the model names what is possible, and asks what the
store has done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.core.clock import Micros
from holdfast.core.job import Reason, State
from holdfast.core.journal import Edge, OnFailure, await_join
from holdfast.testing.contract.model import End, Model
from holdfast.testing.contract.model_item import Item, Name
from holdfast.testing.contract.model_journal import Joined

Shown = Callable[[Item], State | None]
"""What the store says that the state of a job is now; None if the job is gone."""
Effects = dict[tuple[Name, str], list[State | None]]
"""By job and join: the state that each end of a call may put the job into. None: it is counted."""
_VERDICTS = {OnFailure.FAIL: State.FAILED, OnFailure.SKIP: State.CANCELED, OnFailure.RUN: None}


class _Told(NamedTuple):
    """One edge: what it leads to, and the end that it tells of."""

    item: Item
    join: Joined
    edge: Edge
    end: End
    now: Micros


def follow(model: Model, shown: Shown, now: Micros) -> None:
    """Tells everything that awaits them of the jobs that the last call has ended."""
    effects = _effects(model)
    while model.ends:
        end = model.ends.pop(0)
        for edge in end.edges:
            item, join = _target(model, end, edge)
            if item is not None and join is not None:
                together = effects.get((item.name, edge.join), [])
                _tell(model, _Told(item, join, edge, end, now), together, shown)


def _target(model: Model, end: End, edge: Edge) -> tuple[Item | None, Joined | None]:
    """The job that an edge leads to and its join, if that can still count."""
    item = model.get(end.tenant, edge.target)
    if item is None or item.over:
        return None, None
    join = item.notes.joins.get(edge.join)
    return item, join if join is not None and join.left > 0 else None


def _verdict(item: Item, edge: Edge, end: End) -> State | None:
    waits = item.state is State.WAITING and not end.completed
    return _VERDICTS[edge.on_failure] if waits else None


def _effects(model: Model) -> Effects:
    """Everything that may happen because of these ends, and of those that they cause."""
    effects: Effects = defaultdict(list)
    queue, seen = list(model.ends), set[Name]()
    while queue:
        end = queue.pop()
        for edge in end.edges:
            item, join = _target(model, end, edge)
            if item is None or join is None:
                continue
            verdict = _verdict(item, edge, end)
            effects[item.name, edge.join].append(verdict)
            if verdict is not None and item.name not in seen:
                seen.add(item.name)
                queue.append(End(item.new.tenant, item.new.edges, False))
    return effects


def _tell(model: Model, told: _Told, together: Sequence[State | None], shown: Shown) -> None:
    item, join = told.item, told.join
    verdicts = {verdict for verdict in together if verdict is not None}
    may_run = together.count(None) >= join.left
    join.unsure |= len(together) > join.left or (len(together) > 1 and bool(verdicts))
    verdict = _verdict(item, told.edge, told.end)
    if verdicts and (len(verdicts) > 1 or may_run):
        found = shown(item)
        if found is None:  # It ended, and was not kept.
            found = min(verdicts, key=lambda each: _keeping(item, each))
        if found in verdicts:
            verdict = found
        else:
            assert found is State.WAITING or may_run
            if found is not State.WAITING:
                verdict = None
                join.ends += [False] * (join.left - 1)
    join.ends.append(not told.end.completed)
    if verdict is not None:
        item.blames = True
        reason = Reason.PARENT_FAILED if verdict is State.FAILED else None
        model.end(item, verdict, told.now, reason)
    elif join.left == 0:
        model.come(item, await_join(told.edge.join), told.now)


def _keeping(item: Item, state: State) -> Micros:
    rules = item.new.rules
    return rules.keep_failed_us if state is State.FAILED else rules.keep_us
