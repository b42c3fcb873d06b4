"""The model: a small queue written from the promises, as one list of jobs that is always scanned.

`machine.py` compares a store with it. If a promise allows several answers, the model names all of
them: any claim may rescue an expired lease with attempts left, so until the job is claimed it may
be shown as processing or as enqueued.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.clock import Micros
from holdfast.core.errors import (
    HoldfastError,
    InvalidLeaseToken,
    JobAlreadyTerminal,
    JobCanceled,
    JobNotFound,
    LeaseExpired,
)
from holdfast.core.job import TERMINAL, Lease, NewJob, Reason, State, replay_id
from holdfast.store import Act

Error = type[HoldfastError]
Line = tuple[str, str]
Scope = tuple[str, str, str, str]


@dataclass
class Item:
    """A job. ENQUEUED stands for enqueued and scheduled: the time tells them apart."""

    new: NewJob
    seq: int
    priority: int
    created_at: Micros
    run_at: Micros
    expires_at: Micros | None
    state: State = State.ENQUEUED
    attempt: int = 0
    fence: int = 0
    lapses: int = 0
    token: str | None = None
    until: Micros = 0
    finished_at: Micros = 0
    reason: Reason | None = None
    result: object = None
    replayed_as: str | None = None
    unsure: bool = False
    """Canceled after its lease expired: a claim may or may not have rescued it before."""

    @property
    def name(self) -> tuple[str, str]:
        return self.new.tenant, self.new.id

    @property
    def line(self) -> Line:
        return self.new.tenant, self.new.queue

    @property
    def spent(self) -> bool:
        return self.attempt >= self.new.rules.max_attempts

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    def lapsed(self, now: Micros) -> bool:
        return self.state is State.PROCESSING and self.until <= now

    def stale(self, now: Micros) -> bool:
        """Whether it is past its time to live."""
        return self.expires_at is not None and self.expires_at <= now

    def faces(self, now: Micros) -> set[State]:
        """The states a reader may be shown."""
        if self.lapsed(now) and not self.spent:
            return {State.PROCESSING, State.ENQUEUED}
        if self.state is State.ENQUEUED and self.run_at > now:
            return {State.SCHEDULED}
        if self.state is State.RETRYING and self.run_at <= now:
            return {State.ENQUEUED}
        return {self.state}

    def eligible(self, now: Micros) -> bool:
        """P9, P10: due, or its lease expired with attempts left; and within its time to live."""
        if self.stale(now) or self.over:
            return False
        if self.state is State.PROCESSING:
            return self.until <= now and not self.spent
        return self.run_at <= now

    def refusal(self, token: str, now: Micros) -> Error | None:
        """P3, for an item that was found."""
        if self.state is State.CANCELED:
            return JobCanceled
        if self.over:
            return JobAlreadyTerminal
        if self.token != token:
            return InvalidLeaseToken
        return LeaseExpired if self.state is not State.PROCESSING or self.until <= now else None


class Model:
    """The queue. Each verb returns the answer that the store must give, and updates the list."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.keys: dict[Scope, tuple[str, Micros | None]] = {}
        self._seq = 0

    def get(self, tenant: str, id: str) -> Item | None:
        return next((item for item in self.items if item.name == (tenant, id)), None)

    def instants(self, now: Micros) -> list[Micros]:
        """The instants at which something is due, expires, or ends its retention."""
        ends = {self._keep_until(item) for item in self.items if item.over}
        ends |= {until for _, until in self.keys.values() if until is not None}
        for item in self.items:
            if not item.over:
                ends |= {item.run_at, item.until, item.expires_at or 0}
        return sorted(at for at in ends if at > now + 1)

    def of(self, tenant: str | None) -> list[Item]:
        return [item for item in self.items if tenant in (None, item.new.tenant)]

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
        item.token, item.until = lease.token, lease.until

    def extend(
        self, name: tuple[str, str], token: str, length: Micros, now: Micros
    ) -> Error | Micros:
        """X07: the refusal, or the new deadline."""
        item = self.get(*name)
        refused = JobNotFound if item is None else item.refusal(token, now)
        if item is None or refused is not None:
            return refused or JobNotFound
        item.until = max(item.until, now + length)
        return item.until

    def refused(self, name: tuple[str, str], token: str, now: Micros) -> Error | None:
        item = self.get(*name)
        return JobNotFound if item is None else item.refusal(token, now)

    def give_back(self, item: Item, run_at: Micros) -> None:
        """P11: the attempt does not count."""
        item.attempt -= 1
        item.state, item.run_at, item.token = State.ENQUEUED, run_at, None

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
        """P6, P12: final; the key is free unless timed; the record is kept as its rules say."""
        item.state, item.finished_at = state, now
        item.reason, item.result = reason, result
        self._free_key(item, now)
        if self._keep_until(item) <= now:
            self.items.remove(item)

    def _free_key(self, item: Item, now: Micros) -> None:
        scope = _scope(item.new)
        if scope is None or scope not in self.keys:
            return
        id, until = self.keys[scope]
        if id == item.new.id and (until is None or until <= now):
            del self.keys[scope]

    @staticmethod
    def _keep_until(item: Item) -> Micros:
        rules = item.new.rules
        failed = item.state is State.FAILED
        return item.finished_at + (rules.keep_failed_us if failed else rules.keep_us)

    # -- will ------------------------------------------------------------------------------------

    def cancel(self, name: tuple[str, str], now: Micros) -> bool | None:
        """P5: whether it is canceled now; None if it was not found."""
        item = self.get(*name)
        if item is None:
            return None
        if not item.over:
            item.unsure = item.lapsed(now) and not item.spent
            self.end(item, State.CANCELED, now)
        return item.state is State.CANCELED

    def changeable(self, act: Act, items: list[Item], now: Micros) -> tuple[set[str], set[str]]:
        """The ids that must be changed, and those that may be (depending on an earlier rescue)."""
        must, may = set(), set()
        for item in items:
            if act is Act.REPLAY:
                if item.over and item.replayed_as is None:
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
        self.items.remove(item)

    def replay(self, item: Item, now: Micros) -> Item:
        """P6: a new job that names its origin, without its key and its delay."""
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
        return self._add(new, now)

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

    def prunable(self, now: Micros) -> list[Item]:
        return [item for item in self.items if item.over and self._keep_until(item) <= now]


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
