"""Was a limit ever exceeded? The audit learns it from the log, and says when a lease broke it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import operate
from holdfast.audit import Audit
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Event, EventKind
from holdfast.core.lifecycle import decide
from holdfast.core.rate import rate
from holdfast.core.scope import (
    GroupRules,
    Pause,
    Scope,
    ScopeKind,
    ScopeSettings,
    encode,
    platform_scopes,
)
from holdfast.core.tiers import Defaults, LimitRules, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.scopes import ScopeHandle
from holdfast.store import Claim
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, job

TENANT = Scope("acme")
QUEUE = Scope("acme", ScopeKind.QUEUE, "mail")
OVER_ALL = platform_scopes("mail", "t")


class Log:
    """Events as a store would write them, a microsecond apart."""

    def __init__(self, group: str | None = None, copies_us: int = 0) -> None:
        self.audit = Audit(lambda tenant, job_id: group, copies_us=copies_us)
        self._cursor = 0
        self._passed = 0
        self._fences: dict[str, int] = {}

    def limit(self, scope: Scope, most: int | None) -> None:
        note = encode(ScopeSettings(max_running=most)).decode() if most is not None else ""
        self._say(EventKind.CONFIGURED, scope.name, note=note)

    def configure(self, scope: Scope, settings: ScopeSettings) -> None:
        self._say(EventKind.CONFIGURED, scope.name, note=encode(settings).decode())

    def tier(self, tier: str, defaults: Defaults | None) -> None:
        note = "" if defaults is None else encode_tier(defaults).decode()
        self._say(EventKind.CONFIGURED, name_of(tier), note=note)

    def wait(self, seconds: float) -> None:
        self._passed += int(seconds * SECOND)

    def lease(self, *ids: str, lasts: int = 60 * SECOND, tenant: str = "acme") -> None:
        for id in ids:
            self._fences[id] = self._fences.get(id, 0) + 1
            self._say(EventKind.LEASED, id, until=self._cursor + lasts, tenant=tenant)

    def end(self, *ids: str) -> None:
        for id in ids:
            self._say(EventKind.COMPLETED, id)

    def give_back(self, id: str) -> None:
        self._say(EventKind.RELEASED, id)

    def _say(
        self,
        kind: EventKind,
        id: str,
        until: int | None = None,
        note: str | None = None,
        tenant: str = "acme",
    ) -> None:
        self._cursor += 1
        fence = self._fences.get(id, 0)
        event = Event(
            self._cursor,
            self._passed + self._cursor,
            kind,
            tenant,
            id,
            "mail",
            "t",
            1,
            fence,
            until,
            note,
        )
        self.audit.feed([event])

    @property
    def broken(self) -> list[tuple[str, str]]:
        return [(breach.promise, breach.job_id) for breach in self.audit.breaches]


@pytest.mark.parametrize("scope", [TENANT, QUEUE, *OVER_ALL], ids=lambda scope: scope.words)
def test_a_lease_above_the_limit_is_a_breach(scope: Scope) -> None:
    """Of the promise about limits, named with the job that broke it."""
    log = Log()
    log.limit(scope, 2)
    log.lease("a", "b", "c")

    assert log.broken == [("P13", "c")]
    assert "3 valid leases, its limit is 2" in log.audit.breaches[0].words


@pytest.mark.parametrize("scope", OVER_ALL, ids=lambda scope: scope.words)
def test_a_limit_of_the_platform_counts_the_jobs_of_all_tenants(scope: Scope) -> None:
    """Also where two tenants have a job of the same id."""
    log = Log()
    log.limit(scope, 2)
    log.lease("a", "b")
    log.lease("a", tenant="globex")

    assert log.broken == [("P13", "a")]
    assert f"{scope.words} has 3 valid leases" in log.audit.breaches[0].words


def test_a_place_is_free_when_its_lease_has_ended() -> None:
    """By its end, by being given back, or by its deadline."""
    log = Log()
    log.limit(QUEUE, 1)
    log.lease("a")
    log.end("a")
    log.lease("b")
    log.give_back("b")
    log.lease("c", lasts=0)
    log.lease("d")

    assert log.broken == []


def test_what_was_taken_before_a_limit_was_lowered_is_no_breach() -> None:
    """The next one is; and none after the limit is gone."""
    log = Log()
    log.limit(TENANT, 3)
    log.lease("a", "b", "c")
    log.limit(TENANT, 1)
    log.end("a")
    lowered = list(log.broken)
    log.lease("d")
    log.limit(TENANT, None)
    log.lease("e", "f")

    assert (lowered, log.broken) == ([], [("P13", "d")])


@pytest.mark.parametrize("scope", [TENANT, QUEUE, *OVER_ALL], ids=lambda scope: scope.words)
def test_a_start_above_the_rate_is_a_breach(scope: Scope) -> None:
    """Tokens come with time; the ends of jobs bring none."""
    log = Log()
    log.configure(scope, ScopeSettings(rate=rate("2/s")))
    log.lease("a", "b")
    log.end("a", "b")
    log.wait(0.5)
    log.lease("c", "d")

    assert log.broken == [("P13", "d")]
    assert "above its rate of 2/s" in log.audit.breaches[0].words


def test_a_raised_rate_counts_from_its_change_on() -> None:
    """A bucket is at most empty then; the time before brings no tokens of the new rate."""
    log = Log()
    log.configure(TENANT, ScopeSettings(rate=rate("1/h")))
    log.lease("a")
    log.wait(60)
    log.configure(TENANT, ScopeSettings(rate=rate("1/s")))
    log.wait(1)
    log.lease("b", "c")

    assert log.broken == [("P13", "c")]


@pytest.mark.parametrize("scope", [TENANT, QUEUE, *OVER_ALL], ids=lambda scope: scope.words)
def test_a_start_in_a_paused_scope_is_a_breach(scope: Scope) -> None:
    """Until it is resumed."""
    log = Log()
    log.configure(scope, ScopeSettings(paused=Pause("because", "ann")))
    log.lease("a")
    log.configure(scope, ScopeSettings())
    log.lease("b")

    assert log.broken == [("P13", "a")]
    assert "while it was paused" in log.audit.breaches[0].words


def test_limits_of_a_tier_count_for_its_tenants() -> None:
    """The defaults for the others, own settings before both, each change from its event on."""
    log = Log()
    log.tier("", Defaults(max_running=1))
    log.tier("pro", Defaults(max_running=2))
    log.configure(TENANT, ScopeSettings(tier="pro"))
    log.lease("a", "b")
    log.lease("c", tenant="globex")
    log.lease("d", tenant="globex")
    log.configure(Scope("globex"), ScopeSettings(max_running=3))
    log.lease("e", tenant="globex")
    log.tier("pro", Defaults(max_running=3))
    log.lease("f")
    log.lease("g")

    assert log.broken == [("P13", "d"), ("P13", "g")]


def test_a_changed_tier_may_reach_other_shards_a_little_later() -> None:
    """Until then its limit before counts there, and no higher one; later only the new one."""
    log = Log(copies_us=5 * SECOND)
    log.tier("", Defaults(max_running=3))
    log.wait(10)
    log.tier("", Defaults(max_running=1))
    log.lease("a", "b", "c")
    log.lease("d")
    log.wait(5)
    log.end("d")
    log.lease("e")

    assert log.broken == [("P13", "d"), ("P13", "e")]


def test_limits_of_a_tier_count_for_queues_and_groups() -> None:
    """A queue's rules for groups come before those of the tier."""
    log = Log(group="crawl")
    log.tier("", Defaults(queue=LimitRules(max_running=3), group=LimitRules(max_running=1)))
    log.lease("a", "b")
    log.configure(QUEUE, ScopeSettings(groups=GroupRules(max_running=5)))
    log.lease("c", "d")
    log.tier("", None)
    log.lease("e")

    assert log.broken == [("P13", "b"), ("P13", "d")]


def test_settings_are_no_jobs_that_never_ended() -> None:
    """Neither are limits of groups checked: events do not name the group."""
    log = Log()
    log.limit(Scope("acme", ScopeKind.GROUP, "g"), 1)
    log.lease("a", "b")

    assert log.broken == []
    assert log.audit.unended == {("acme", "a"), ("acme", "b")}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_store_keeps_its_limits_while_they_change(kind: str, tmp_path: Path) -> None:
    """As its own log tells."""
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    clock = ManualClock()
    store = open_store(url, clock)
    if not store.capabilities.scopes:
        pytest.skip("this store keeps no scopes yet")
    await store.open()
    await store.enqueue([job(f"j{number}") for number in range(200)])
    handle = ScopeHandle(store, Scope(ACME))
    for number in range(40):
        await handle.set(max_running=1 + number * 7 % 5)
        claim = Claim(worker="w", nonce=f"n{number}", limit=10, lease_us=5 * SECOND)
        leases = await store.claim(claim)
        clock.advance(1)
        done = [decide(Completed(), one.job, one.token, 0.0) for one in leases[::2]]
        await store.ack(done)
    audit = await operate.audit(store)
    await store.close()

    assert audit.breaches == []
    assert audit.counts[EventKind.CONFIGURED] == 40
    assert audit.counts[EventKind.LEASED] > 40
