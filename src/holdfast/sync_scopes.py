"""The handles of scopes and tiers without await, for blocking code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Protocol, TypeVar, Unpack

from holdfast.core.amend import DefaultLimits, Limits
from holdfast.core.job import By
from holdfast.core.scope import Scope
from holdfast.core.tiers import Effective
from holdfast.platform import PlatformHandle
from holdfast.scopes import Canceling, GroupHandle, ScopeHandle, ScopeState, Slot
from holdfast.store import Page, Tally
from holdfast.tiers import TierHandle, TierState

T = TypeVar("T")


class Bridge(Protocol):
    """The part of `sync.SyncApp` that the handles use."""

    def call(self, work: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T: ...


class SyncScope:
    """`holdfast.scopes.ScopeHandle` without await."""

    def __init__(self, bridge: Bridge, scope: ScopeHandle) -> None:
        self._call = bridge.call
        self._handle = scope
        self.scope: Scope = scope.scope

    def get(self) -> ScopeState:
        return self._call(self._handle.get())

    def effective(self) -> dict[str, Effective]:
        return self._call(self._handle.effective())

    def set(
        self, *, expect: int | None = None, by: By | None = None, **changes: Unpack[Limits]
    ) -> ScopeState:
        return self._call(self._handle.set(expect=expect, by=by, **changes))

    def pause(self, reason: str, author: str) -> ScopeState:
        return self._call(self._handle.pause(reason, author))

    def resume(self, author: str, reason: str = "") -> ScopeState:
        return self._call(self._handle.resume(author, reason))

    def counts(self) -> Tally:
        return self._call(self._handle.counts())

    def push_slot(self, id: str, seconds: float, *, note: str = "") -> Slot:
        return self._call(self._handle.push_slot(id, seconds, note=note))

    def remove_slot(self, id: str) -> None:
        self._call(self._handle.remove_slot(id))

    def slots(self) -> list[Slot]:
        return self._call(self._handle.slots())

    def count_slots(self) -> int:
        return self._call(self._handle.count_slots())


class SyncPlatform(SyncScope):
    """`holdfast.platform.PlatformHandle` without await."""

    _handle: PlatformHandle

    def __init__(self, bridge: Bridge, platform: PlatformHandle) -> None:
        super().__init__(bridge, platform)
        self._bridge = bridge

    def defaults(self) -> SyncTier:
        return SyncTier(self._bridge, self._handle.defaults())

    def tier(self, name: str) -> SyncTier:
        return SyncTier(self._bridge, self._handle.tier(name))

    def tiers(self) -> list[TierState]:
        return self._call(self._handle.tiers())

    def queue(self, name: str) -> SyncScope:
        return SyncScope(self._bridge, self._handle.queue(name))

    def type(self, name: str) -> SyncScope:
        return SyncScope(self._bridge, self._handle.type(name))


class SyncTier:
    """`holdfast.tiers.TierHandle` without await."""

    def __init__(self, bridge: Bridge, tier: TierHandle) -> None:
        self._call = bridge.call
        self._handle = tier

    def get(self) -> TierState:
        return self._call(self._handle.get())

    def set(
        self, *, expect: int | None = None, by: By | None = None, **changes: Unpack[DefaultLimits]
    ) -> TierState:
        return self._call(self._handle.set(expect=expect, by=by, **changes))

    def delete(self, *, expect: int | None = None, by: By | None = None) -> None:
        self._call(self._handle.delete(expect=expect, by=by))


class SyncGroup(SyncScope):
    """`holdfast.scopes.GroupHandle` without await."""

    _handle: GroupHandle

    def __init__(self, bridge: Bridge, group: GroupHandle) -> None:
        super().__init__(bridge, group)

    def jobs(self, **filters: Any) -> Page:
        return self._call(self._handle.jobs(**filters))

    def cancel(self, *, by: By | None = None) -> Iterator[Canceling]:
        """Yields one step at a time, as the caller requests them."""
        steps = self._handle.cancel(by=by)
        while (step := self._call(next_of(steps))) is not None:
            yield step


async def next_of(steps: AsyncIterator[T]) -> T | None:
    return await anext(steps, None)
