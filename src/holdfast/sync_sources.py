"""The handle of a source without await, for blocking code."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.edge_bounds import SHADOW_ROWS_MAX
from holdfast.core.source import Item
from holdfast.sources.handle import UNNAMED, ObjectPage, Pushed, SourceHandle
from holdfast.sources.status import ShadowObject, SourceStatus
from holdfast.store import Enqueued
from holdfast.sync_scopes import Bridge


class SyncSource:
    """`holdfast.sources.handle.SourceHandle` without await."""

    def __init__(self, bridge: Bridge, source: SourceHandle) -> None:
        self._call = bridge.call
        self._handle = source
        self.tenant = source.tenant
        self.name = source.name

    def status(self) -> SourceStatus:
        return self._call(self._handle.status())

    def objects(self, *, after: str = "", limit: int = SHADOW_ROWS_MAX) -> ObjectPage:
        return self._call(self._handle.objects(after=after, limit=limit))

    def get(self, *ids: str) -> list[ShadowObject]:
        return self._call(self._handle.get(*ids))

    def push(self, items: Iterable[Item]) -> Pushed:
        return self._call(self._handle.push(items))

    def poll_now(self) -> Enqueued[object]:
        return self._call(self._handle.poll_now())

    def reconcile_now(self, *, any_share: bool = False) -> Enqueued[object]:
        return self._call(self._handle.reconcile_now(any_share=any_share))

    def pause(self, reason: str, author: str = UNNAMED) -> SourceStatus:
        return self._call(self._handle.pause(reason, author))

    def resume(self) -> SourceStatus:
        return self._call(self._handle.resume())

    def reset(self) -> SourceStatus:
        return self._call(self._handle.reset())

    def delete(self) -> int:
        return self._call(self._handle.delete())
