"""The part of the machine that cancels, replays, deletes and changes jobs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.core.clock import Micros
from holdfast.core.errors import JobNotFound
from holdfast.core.job import State
from holdfast.store import Act, Change, Ref
from holdfast.testing.contract.builders import by_id, changing
from holdfast.testing.contract.machine_find import FindRules
from holdfast.testing.contract.model_item import Item
from holdfast.testing.contract.strategies import QUEUES, STEPS, TENANTS, lengths, picks, tenants

Some = tuple[str, str, tuple[str, ...]]
"""A tenant, one of its queues, and types; none: all."""


class ChangeRules(FindRules):
    """What operators do to jobs, one by one or by selection."""

    @precondition(lambda self: self.model.items)
    @rule(
        picks=st.lists(picks, min_size=1, max_size=3),
        tenant=st.sampled_from([None, None, *TENANTS]),
        awaited=st.booleans(),
    )
    def cancel(self, picks: list[int], tenant: str | None, awaited: bool) -> None:
        """One or several jobs in one call; some are of another tenant."""
        now = self.step()
        items = {item.name: item for item in map(self.parent if awaited else self.item, picks)}
        refs = [Ref(tenant or item.new.tenant, item.new.id) for item in items.values()]
        for answer, ref in zip(self.run(self.store.cancel(refs)), refs, strict=True):
            expected = self.model.cancel((ref.tenant, ref.id), now)
            assert answer.canceled is bool(expected)
            assert isinstance(answer.error, JobNotFound) is (expected is None)
        self.follow()

    @precondition(lambda self: self.model.items)
    @rule(
        act=st.sampled_from(list(Act)),
        of=st.tuples(tenants, st.sampled_from(QUEUES), st.sampled_from([(), ("send",)])),
        one=st.none() | picks,
        new=st.tuples(st.integers(-2, 2), lengths, st.integers(1, 5)),
        from_step=st.sampled_from([None, *STEPS]),
    )
    def change(
        self,
        act: Act,
        of: Some,
        one: int | None,
        new: tuple[int, Micros, int],
        from_step: str | None,
    ) -> None:
        """The jobs of a queue, or one for which the act means most."""
        now = self.step()
        priority, delay, limit = new
        step = from_step if act is Act.REPLAY and self.store.capabilities.steps else None
        if one is None:
            tenant, queue, types = of
            by: dict[str, Any] = {"queues": (queue,), "types": types}
            fits = [item for item in self.model.of(tenant) if item.new.queue == queue]
            items = [item for item in fits if not types or item.new.envelope.type in types]
        else:
            items = [self.aim(act, step, one)]
            tenant, by = items[0].new.tenant, {"ids": (items[0].new.id,)}
        must, may = self.model.changeable(act, items, step, now)
        done: dict[str, str] = {}
        after: int | None = 0
        while after is not None:
            values = {"priority": priority, "delay_us": delay, "limit": limit, "after": after}
            wish = changing(act, tenant, from_step=step, **by, **values)
            changed = self.run(self.store.change(wish))
            assert len(changed.done) <= limit
            assert not done.keys() & by_id(changed).keys()
            assert changed.cursor is None or changed.cursor > after
            for item in items:
                if item.new.id in by_id(changed):
                    self.apply(wish, item, now)
            self.follow()
            done |= by_id(changed)
            after = changed.cursor
        # What ended with a parent in one step may be gone in the next.
        lost = {item.new.id for item in items if item not in self.model.items}
        assert must - lost <= done.keys() <= must | may
        if act is not Act.REPLAY:
            assert all(id == came for id, came in done.items())

    def aim(self, act: Act, step: str | None, pick: int) -> Item:
        """A job that can be replayed, one that others await, or one that waits itself."""
        if act is Act.DELETE:
            return self.parent(pick)
        if act is Act.REPLAY:
            some = [item for item in self.model.items if item.over and not item.replayed_as]
            known = [item for item in some if step and item.notes.before(step) is not None]
            some = known or some
        else:
            some = [item for item in self.model.items if item.awaits is not None]
        return some[pick % len(some)] if some else self.item(pick)

    def apply(self, wish: Change, item: Item, now: Micros) -> None:
        if item.lapsed(now):
            self.model.rescue(item)
        if wish.act is Act.DELETE:
            self.model.delete(item, now)
        elif wish.act is Act.REPRIORITISE:
            item.priority = wish.priority
        elif wish.act is Act.RESCHEDULE:
            item.run_at = now + wish.delay_us
            if item.state is not State.WAITING:
                item.state = State.ENQUEUED
        elif (replay := self.model.replay(item, wish.from_step, now)) is not None:
            # Whether it has its origin's first or last priority is the store's to choose.
            found = self.lookup(*replay.name)
            assert found.priority in (item.new.priority, item.priority)
            replay.priority = found.priority
