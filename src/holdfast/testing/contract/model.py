"""The model: a small queue written from the promises, as one list of jobs that is always scanned.

`machine.py` compares a store with it. If a promise allows several answers, the model names all of
them: any claim may rescue an expired lease with attempts left, so until the job is claimed it may
be shown as processing or as enqueued.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.core.bounds import KEEP_AGAIN_S
from holdfast.core.clock import SECOND, Micros, micros
from holdfast.core.errors import (
    InvalidLeaseToken,
    JobAlreadyTerminal,
    JobCanceled,
    JobNotFound,
)
from holdfast.core.job import Lease, NewJob, Reason, State, replay_id
from holdfast.core.journal import AWAITS_PARENTS, Edge, Entry, EntryKind, new_join
from holdfast.store import Act
from holdfast.testing.contract.model_item import Error, Item, Line, Name
from holdfast.testing.contract.model_journal import Notes

Scope = tuple[str, str, str, str]
FAR = 366 * 24 * 3600 * SECOND
"""Instants after this are not worth waiting for."""


class End(NamedTuple):
    """The end of a job that others may await."""

    tenant: str
    edges: tuple[Edge, ...]
    completed: bool


class Model:
    """The queue. Each verb returns the answer that the store must give, and updates the list."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.keys: dict[Scope, tuple[str, Micros | None]] = {}
        self.ends: list[End] = []
        """Jobs that the last call has ended; `model_joins.follow` tells those that await them."""
        self.gone: list[NewJob] = []
        """Jobs whose record was deleted."""
        self.sources: dict[Name, set[str]] = {}
        """The ids of jobs with an edge to this one."""
        self._seq = 0

    def get(self, tenant: str, id: str) -> Item | None:
        return next((item for item in self.items if item.name == (tenant, id)), None)

    def instants(self, now: Micros) -> list[Micros]:
        """The instants at which something is due, expires, or ends its retention."""
        ends = {max(item.keep_until, item.again) for item in self.items if item.over}
        ends |= {until for _, until in self.keys.values() if until is not None}
        for item in self.items:
            if not item.over:
                ends |= {item.run_at, item.until, item.expires_at or 0}
        return sorted(at for at in ends if now + 1 < at < now + FAR)

    def of(self, tenant: str | None) -> list[Item]:
        return [item for item in self.items if tenant in (None, item.new.tenant)]

    def edges_to(self, target: Item) -> Iterator[Item]:
        """The jobs that it awaits as its parents, once for each edge."""
        for item in self.of(target.new.tenant):
            for edge in item.new.edges:
                if edge.target == target.new.id and not edge.join:
                    yield item

    # -- journey ---------------------------------------------------------------------------------

    def enqueue(self, new: NewJob, now: Micros) -> tuple[str, bool]:
        """P12: the id the caller gets, and whether it is a new job."""
        if self.get(new.tenant, new.id) is not None:
            return new.id, False
        scope = _scope(new)
        if scope is not None:
            holder = self._holder(scope, now)
            if holder is not None:
                return holder, False
            length = new.rules.key_us
            self.keys[scope] = (new.id, None if length is None else now + length)
        self._add(new, now)
        return new.id, True

    def _holder(self, scope: Scope, now: Micros) -> str | None:
        if scope not in self.keys:
            return None
        id, until = self.keys[scope]
        item = self.get(scope[0], id)
        alive = item is not None and not item.over
        return id if alive or (until is not None and until > now) else None

    def _add(self, new: NewJob, now: Micros) -> Item:
        self._seq += 1
        item = Item(
            new=new,
            seq=self._seq,
            priority=new.priority,
            created_at=now,
            run_at=now + new.delay_us if new.run_at is None else new.run_at,
            expires_at=None if new.ttl_us is None else now + new.ttl_us,
        )
        if new.parents:
            item.state, item.awaits = State.WAITING, AWAITS_PARENTS
            item.notes.write([new_join("", new.parents)], now)
        for edge in new.edges:
            self.sources.setdefault((new.tenant, edge.target), set()).add(new.id)
        self.items.append(item)
        return item

    def lines(
        self, lines: Iterable[Line], now: Micros, without: tuple[str, ...] = ()
    ) -> dict[Line, list[Item]]:
        """P9: the eligible jobs of each of these lines, in the required order.

        Limits are not considered here; `model_scopes.py` does that.
        """
        wanted = set(lines)
        ready: dict[Line, list[Item]] = {}
        for item in sorted(self.items, key=lambda each: (-each.priority, each.seq)):
            left_out = item.new.group is not None and item.new.group in without
            if item.line in wanted and item.eligible(now) and not left_out:
                ready.setdefault(item.line, []).append(item)
        return ready

    def take(self, lease: Lease, now: Micros) -> None:
        item = self.get(lease.job.tenant, lease.job.id)
        assert item is not None
        item.lapses += item.lapsed(now)
        item.state = State.PROCESSING
        item.attempt += 1
        item.fence += 1
        item.token, item.until, item.awaits = lease.token, lease.until, None

    def extend(
        self, name: Name, token: str, length: Micros, now: Micros, entries: Iterable[Entry] = ()
    ) -> Error | Micros:
        """X07, P16: the refusal, or the new deadline."""
        item = self.get(*name)
        refused = JobNotFound if item is None else item.refusal(token, now)
        if item is None or refused is not None:
            return refused or JobNotFound
        item.until = max(item.until, now + length)
        item.notes.write(entries, now)
        return item.until

    def write(self, name: Name, entries: Iterable[Entry], now: Micros) -> None:
        """P16: what an accepted ack writes."""
        item = self.get(*name)
        assert item is not None
        item.notes.write(entries, now)

    def refused(self, name: Name, token: str, now: Micros) -> Error | None:
        item = self.get(*name)
        return JobNotFound if item is None else item.refusal(token, now)

    def give_back(self, item: Item, run_at: Micros) -> None:
        """P11: the attempt does not count."""
        item.attempt -= 1
        item.state, item.run_at, item.token = State.ENQUEUED, run_at, None

    def park(self, item: Item, run_at: Micros, awaits: str | None, now: Micros) -> None:
        """P10, P11: ready at once if what it awaits has come."""
        self.give_back(item, min(run_at, now) if item.notes.has(awaits) else run_at)
        item.awaits, item.come_late = awaits if item.run_at > now else None, False

    def come(self, item: Item, what: str, now: Micros) -> None:
        """P10, P17: makes a job ready that awaits this."""
        if item.awaits != what or item.state not in (State.WAITING, State.ENQUEUED):
            return
        if item.state is State.WAITING:
            item.releases += 1
        else:
            item.come_late = item.run_at <= now
            item.run_at = min(item.run_at, now)
        item.state = State.ENQUEUED
        if not item.come_late:
            item.awaits = None

    def signal(self, name: Name, key: str, value: bytes, now: Micros) -> tuple[bool, Error | None]:
        """P16: whether it was stored, or why not."""
        item = self.get(*name)
        if item is None:
            return False, JobNotFound
        if item.over:
            return False, JobCanceled if item.state is State.CANCELED else JobAlreadyTerminal
        if (EntryKind.SIGNAL, key) in item.notes.values:
            return False, None
        item.notes.write([Entry(EntryKind.SIGNAL, key, value)], now)
        item.sent += 1
        self.come(item, f"signal:{key}", now)
        return True, None

    def retry(self, item: Item, run_at: Micros, now: Micros) -> None:
        """P11: retried if attempts are left, else failed."""
        if item.spent:
            self.end(item, State.FAILED, now, Reason.MAX_ATTEMPTS)
        else:
            item.state, item.run_at, item.token = State.RETRYING, run_at, None

    def end(
        self,
        item: Item,
        state: State,
        now: Micros,
        reason: Reason | None = None,
        result: object = None,
    ) -> None:
        """P6, P12: final; the key is free unless timed; the record is kept as its rules say, and
        until `prune` looks whether others still need its result.
        """
        item.state, item.finished_at = state, now
        item.reason, item.result = reason, result
        self._free_key(item, now)
        self._tell(item)
        if item.keep_until <= now and not item.new.edges:
            self._drop(item)

    def _tell(self, item: Item) -> None:
        if item.new.edges:
            completed = item.state is State.COMPLETED
            self.ends.append(End(item.new.tenant, item.new.edges, completed))

    def _drop(self, item: Item) -> None:
        self.items.remove(item)
        self.gone.append(item.new)

    def _free_key(self, item: Item, now: Micros) -> None:
        scope = _scope(item.new)
        if scope is None or scope not in self.keys:
            return
        id, until = self.keys[scope]
        if id == item.new.id and (until is None or until <= now):
            del self.keys[scope]

    # -- will ------------------------------------------------------------------------------------

    def cancel(self, name: Name, now: Micros) -> bool | None:
        """P5: whether it is canceled now; None if it was not found."""
        item = self.get(*name)
        if item is None:
            return None
        if not item.over:
            item.unsure = item.lapsed(now) and not item.spent
            self.end(item, State.CANCELED, now)
        return item.state is State.CANCELED

    def changeable(
        self, act: Act, items: list[Item], from_step: str | None, now: Micros
    ) -> tuple[set[str], set[str]]:
        """The ids that must be changed, and those that may be (depending on an earlier rescue)."""
        must, may = set(), set()
        for item in items:
            if act is Act.REPLAY:
                known = from_step is None or item.notes.before(from_step) is not None
                if item.over and item.replayed_as is None and known:
                    must.add(item.new.id)
            elif item.lapsed(now) and not item.spent:
                may.add(item.new.id)
            elif item.state is not State.PROCESSING and (act is Act.DELETE or not item.over):
                must.add(item.new.id)
        return must, may

    def rescue(self, item: Item) -> None:
        """P11: the attempt counts, and the old token is refused as expired."""
        item.state, item.lapses = State.ENQUEUED, item.lapses + 1
        item.run_at = min(item.run_at, item.until)

    def delete(self, item: Item, now: Micros) -> None:
        self._free_key(item, now)
        if not item.over:
            self._tell(item)
        self._drop(item)

    def replay(self, item: Item, from_step: str | None, now: Micros) -> Item | None:
        """P6: a new job that names its origin, without its key, its delay, parents and edges."""
        old = item.new
        new = NewJob(
            tenant=old.tenant,
            id=replay_id(old.tenant, old.id),
            queue=old.queue,
            envelope=old.envelope,
            rules=old.rules,
            priority=old.priority,
            ttl_us=old.ttl_us,
            group=old.group,
            tags=old.tags,
            origin=old.id,
        )
        item.replayed_as = new.id
        if self.get(new.tenant, new.id) is not None:
            return None
        replay = self._add(new, now)
        if from_step is not None:
            replay.notes = item.notes.before(from_step) or Notes()
        return replay

    # -- upkeep ----------------------------------------------------------------------------------

    def expired(self, now: Micros) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """The jobs that `expired` must return, and those that it may return."""
        must: set[tuple[str, str]] = set()
        may: set[tuple[str, str]] = set()
        for item in self.items:
            if item.lapsed(now):
                (must if item.spent or item.stale(now) else may).add(item.name)
            elif item.stale(now) and not item.over and item.state is not State.PROCESSING:
                must.add(item.name)
        return must, may

    def prunable(self, now: Micros) -> tuple[list[Item], list[Item]]:
        """The jobs that `prune` must delete, and those that it may delete."""
        past = [item for item in self.items if item.over and item.keep_until <= now]
        free = [item for item in past if not self.is_wanted(item)]
        must = [item for item in free if item.again <= now]
        return must, [item for item in free if item.again > now]

    def pruned(self, gone: list[Item], now: Micros) -> None:
        """P17: a result stays while a job that awaited it lives; it is looked at again later."""
        for item in gone:
            self.delete(item, now)
        for item in self.items:
            if item.over and max(item.keep_until, item.again) <= now:
                item.again = now + micros(KEEP_AGAIN_S)

    def is_wanted(self, item: Item) -> bool:
        """Whether a job lives that an edge of this one leads to."""
        targets = (self.get(item.new.tenant, edge.target) for edge in item.new.edges)
        return any(target is not None and not target.over for target in targets)


def _scope(new: NewJob) -> Scope | None:
    return None if new.key is None else (new.tenant, new.queue, new.envelope.type, new.key)


def lapse_answers(item: Item | None, token: str | None, now: Micros) -> set[Error | None]:
    """The allowed answers to an ack of the upkeep, after a fresh or an old read. None: applied."""
    if item is None:
        return {JobNotFound}
    if item.over:
        return {JobCanceled if item.state is State.CANCELED else JobAlreadyTerminal}
    if item.lapsed(now) and not item.spent:
        # Rescued by a claim in passing, or not: then only the one of the two looks holds.
        fits = item.token == token or (token is None and item.stale(now))
        return {None, InvalidLeaseToken} if fits else {InvalidLeaseToken}
    if item.lapsed(now):
        return {None if item.token == token else InvalidLeaseToken}
    waiting = item.state is not State.PROCESSING
    expired = waiting and item.stale(now) and token is None
    return {None if expired else InvalidLeaseToken}
