"""The handle of a schedule without await, for blocking code."""

from __future__ import annotations

from datetime import datetime
from typing import Unpack

from holdfast.core.job import By
from holdfast.definitions import ScheduleState, Timed
from holdfast.schedules import UNNAMED, Backfill, ScheduleHandle
from holdfast.store import Enqueued
from holdfast.sync_scopes import Bridge
from holdfast.typed import AnyJob


class SyncSchedule:
    """`holdfast.schedules.ScheduleHandle` without await."""

    def __init__(self, bridge: Bridge, schedule: ScheduleHandle) -> None:
        self._call = bridge.call
        self._handle = schedule
        self.tenant = schedule.tenant
        self.name = schedule.name

    def get(self) -> ScheduleState:
        return self._call(self._handle.get())

    def set(
        self,
        job: AnyJob[object] | None = None,
        *,
        expect: int | None = None,
        by: By | None = None,
        **given: Unpack[Timed],
    ) -> ScheduleState:
        return self._call(self._handle.set(job, expect=expect, by=by, **given))

    def delete(self, *, expect: int | None = None, by: By | None = None) -> None:
        self._call(self._handle.delete(expect=expect, by=by))

    def pause(self, reason: str, author: str = UNNAMED) -> ScheduleState:
        return self._call(self._handle.pause(reason, author))

    def resume(self, author: str = UNNAMED, reason: str = "") -> ScheduleState:
        return self._call(self._handle.resume(author, reason))

    def next(self, number: int = 5) -> list[datetime]:
        return self._call(self._handle.next(number))

    def run_now(self, *, by: By | None = None) -> Enqueued[object]:
        return self._call(self._handle.run_now(by=by))

    def backfill(
        self, first: datetime, last: datetime, *, apply: bool = False, by: By | None = None
    ) -> Backfill:
        return self._call(self._handle.backfill(first, last, apply=apply, by=by))
