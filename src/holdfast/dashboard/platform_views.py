"""The content of the platform's page as plain values: limits over all tenants, and tiers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import operate
from holdfast.core.job import State
from holdfast.core.rate import Rate
from holdfast.core.scope import PLATFORM, Pause, Scope, ScopeKind
from holdfast.core.tiers import Defaults, LimitRules
from holdfast.dashboard import words
from holdfast.scopes import rate_text
from holdfast.store import Store

KINDS = {
    ScopeKind.PLATFORM: "all jobs",
    ScopeKind.QUEUE: "queue",
    ScopeKind.TYPE: "type",
}


class ScopeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A scope of the platform with settings."""

    kind: str
    name: str
    running: int
    most: int | None
    rate: str
    pause: Pause | None


class TierRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tier, or the defaults of all tenants."""

    name: str
    tenants: Sequence[str]
    queues: Sequence[str]
    groups: Sequence[str]
    ceiling: Sequence[str]


class PlatformView(msgspec.Struct, frozen=True, kw_only=True):
    limited: bool
    """Whether the store keeps limits of the platform."""
    tiered: bool
    scopes: Sequence[ScopeRow]
    tiers: Sequence[TierRow]


async def platform(store: Store) -> PlatformView:
    """What the platform has set, and how many jobs run under it."""
    limited, tiered = store.capabilities.platform, store.capabilities.tiers
    return PlatformView(
        limited=limited,
        tiered=tiered,
        scopes=await _scopes(store) if limited else (),
        tiers=[
            _tier(each.tier, each.defaults)
            for each in (await operate.platform(store).tiers() if tiered else ())
        ],
    )


async def _scopes(store: Store) -> list[ScopeRow]:
    states = await operate.scopes(store, "")
    running: dict[Scope, int] = {}
    for kind in KINDS:
        for tally in await store.count("", by=kind):
            running[Scope("", kind, tally.queue)] = tally.counts.get(State.PROCESSING, 0)
    return [
        ScopeRow(
            kind=KINDS[scope.kind],
            name=scope.part,
            running=running.get(scope, 0),
            most=state.settings.max_running,
            rate=_rate(state.settings.rate),
            pause=state.settings.paused,
        )
        for scope, state in sorted(
            states.items(), key=lambda each: (each[0] != PLATFORM, each[0].kind, each[0].part)
        )
    ]


def _tier(name: str, defaults: Defaults) -> TierRow:
    caps = (
        ("weight {}", defaults.weight),
        ("at most {} waiting", defaults.max_queued),
        ("at most {} bytes", defaults.max_bytes),
    )
    whole = LimitRules(max_running=defaults.max_running, rate=defaults.rate)
    own = [text.format(words.number(value)) for text, value in caps if value is not None]
    return TierRow(
        name=name,
        tenants=[*_limits(whole), *own],
        queues=_limits(defaults.queue),
        groups=_limits(defaults.group),
        ceiling=_limits(defaults.ceiling),
    )


def _limits(rules: object) -> list[str]:
    most: int | None = getattr(rules, "max_running", None)
    found = [] if most is None else [f"at most {words.number(most)} running"]
    rate: Rate | None = getattr(rules, "rate", None)
    return found if rate is None else [*found, rate_text(rate)]


def _rate(rate: Rate | None) -> str:
    return "" if rate is None else rate_text(rate)
