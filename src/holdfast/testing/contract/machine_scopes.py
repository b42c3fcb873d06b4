"""The part of the machine that sets limits, order and pauses, and drains all jobs under them."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import (
    TENANT_KINDS,
    BlockerKind,
    Pause,
    Scope,
    ScopeKind,
    ScopeSettings,
    encode,
)
from holdfast.core.tiers import Defaults, LimitRules, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.store import Put, Ref
from holdfast.testing.contract.builders import PLATFORM_SCOPES
from holdfast.testing.contract.machine_base import MachineBase
from holdfast.testing.contract.model_scopes import scopes_of
from holdfast.testing.contract.strategies import TENANTS, picks, platform_scopes, scopes

PRO = "pro"
MOST = st.sampled_from([None, None, 1, 2, 3])
PAUSE = Pause("because", "ann")
TURNS_MAX = 1000
"""The number of claims after which every job must have ended."""
IDLE_MAX = 5
"""Claims in vain, half a minute apart, after which nothing else becomes ready by itself."""


class ScopeRules(MachineBase):
    """Random settings. Claims are checked against the latest settings."""

    @precondition(lambda self: self.store.capabilities.scopes)
    @rule(
        scope=scopes,
        most=st.sampled_from([None, 1, 2, 3]),
        paused=st.sampled_from([False, False, False, True]),
        ordered=st.sampled_from([None, None, False, True]),
    )
    def configure(self, scope: Scope, most: int | None, paused: bool, ordered: bool | None) -> None:
        self.step()
        of_group = scope.kind is ScopeKind.GROUP
        settings = ScopeSettings(
            max_running=most,
            paused=PAUSE if paused else None,
            ordered=ordered if of_group else None,
            tier=self.words.of(scope).tier,
        )
        self.say(scope, settings)

    @precondition(lambda self: self.store.capabilities.platform)
    @rule(
        scope=platform_scopes,
        most=st.sampled_from([None, 1, 2, 3]),
        paused=st.sampled_from([False, False, False, True]),
    )
    def configure_platform(self, scope: Scope, most: int | None, paused: bool) -> None:
        self.step()
        self.say(scope, ScopeSettings(max_running=most, paused=PAUSE if paused else None))

    @precondition(lambda self: self.store.capabilities.tiers)
    @rule(tier=st.sampled_from(["", PRO]), most=MOST, in_queue=MOST, in_group=MOST)
    def configure_tier(
        self, tier: str, most: int | None, in_queue: int | None, in_group: int | None
    ) -> None:
        self.step()
        self.words.tiers[tier] = Defaults(
            max_running=most,
            queue=LimitRules(max_running=in_queue),
            group=LimitRules(max_running=in_group),
        )
        name = name_of(tier)
        found = [each for each in self.run(self.store.settings(under=name)) if each.name == name]
        version = found[0].version if found else 0
        self.run(self.store.settings([Put(name, encode_tier(self.words.tiers[tier]), version)]))

    @precondition(lambda self: PRO in self.words.tiers)
    @rule(tenant=st.sampled_from(TENANTS), joins=st.booleans())
    def change_tier(self, tenant: str, joins: bool) -> None:
        self.step()
        own = self.words.of(Scope(tenant))
        self.say(Scope(tenant), msgspec.structs.replace(own, tier=PRO if joins else None))

    def say(self, scope: Scope, settings: ScopeSettings) -> None:
        found = [
            each
            for each in self.run(self.store.settings(under=scope.name))
            if each.name == scope.name
        ]
        version = found[0].version if found else 0
        value = None if settings == ScopeSettings() else encode(settings)
        if value is not None or found:
            self.run(self.store.settings([Put(scope.name, value, version)]))
        self.words.set(scope, settings)

    @precondition(lambda self: self.store.capabilities.scopes and self.model.items)
    @rule(pick=picks)
    def explain(self, pick: int) -> None:
        """P13: `explain` reports an ended or a running job as such, and names every pause of
        others, and what they await.
        """
        now = self.step()
        item = self.item(pick)
        gates = self.run(self.store.explain(Ref(*item.name))).gates
        kinds = {gate.kind for gate in gates}
        if item.over:
            assert kinds == {BlockerKind.ENDED}
        elif item.state is State.PROCESSING and item.until > now:
            assert kinds == {BlockerKind.RUNNING}
        else:
            told = {gate.scope for gate in gates if gate.kind is BlockerKind.PAUSE}
            assert told == {each for each in scopes_of(item) if self.words.of(each).paused}
            assert not kinds & {BlockerKind.ENDED, BlockerKind.RUNNING}
            assert (BlockerKind.AWAITS in kinds) in {
                awaits is not None for awaits in item.shown_awaits(now)
            }

    # -- the end ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """P13, P17: without pauses and with all limits in force every job ends, except those whose
        parents, or what else they await, never come.
        """
        for scope, said in list(self.words.said.items()):
            if said.paused is not None:
                self.say(scope, msgspec.structs.replace(said, paused=None))
        idle = 0
        for _ in range(TURNS_MAX):
            if all(item.over for item in self.model.items):
                break
            leases = self.take(PAGE_MAX, 60 * SECOND)
            now = self.clock.now()
            acks = [decide(Completed(), each.job, each.token, 0.5) for each in leases]
            for answer, lease in zip(self.run(self.store.ack(acks)), leases, strict=True):
                assert answer.state is State.COMPLETED
                item = self.model.get(lease.job.tenant, lease.job.id)
                assert item is not None
                self.model.end(item, State.COMPLETED, now)
            self.follow()
            idle = 0 if leases else idle + 1
            if not leases:
                self.look()
                self.act_on_the_look()
                self.clock.advance(30)
            if idle > IDLE_MAX:
                self.give_up()
        assert all(item.over for item in self.model.items)
        self.check_nothing_leaked()

    def give_up(self) -> None:
        """Cancels what nothing that is left can make ready."""
        now = self.clock.now()
        stuck = [item for item in self.model.items if item.shown_awaits(now) != {None}]
        self.run(self.store.cancel([Ref(*item.name) for item in stuck]))
        for item in stuck:
            self.model.cancel(item.name, now)
        self.follow()

    def check_nothing_leaked(self) -> None:
        """P13: no job runs, no count says so, and a recount agrees."""
        if not self.store.capabilities.scopes:
            return
        kinds: list[tuple[str | None, ScopeKind]] = [(None, kind) for kind in TENANT_KINDS]
        if self.store.capabilities.platform:
            kinds += [("", scope.kind) for scope in PLATFORM_SCOPES]
        for tenant, kind in kinds:
            for tally in self.run(self.store.count(tenant, by=kind, recount=True)):
                assert tally.counts.get(State.PROCESSING, 0) == 0
                assert tally.correction == 0
