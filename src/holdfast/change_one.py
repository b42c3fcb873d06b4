"""One change of one job that nobody runs."""

from __future__ import annotations

from typing import Any

from holdfast.core.bounds import INSTANT_MAX
from holdfast.core.check import check_whole
from holdfast.core.errors import JobNotFound, NotChangeable
from holdfast.core.job import By
from holdfast.store import Act, Change, Find, Ref, Selection, Store


def signed(by: By | None) -> By | None:
    """The author, checked."""
    return None if by is None else by.checked()


async def change_one(store: Store, ref: Ref, act: Act, **change: Any) -> None:
    """Reprioritises, reschedules or deletes a job that is not leased. Raises JobNotFound or
    NotChangeable.
    """
    select = Selection(tenant=ref.tenant, ids=(ref.id,))
    if change.get("run_at") is not None:
        check_whole("run_at", change["run_at"], 0, INSTANT_MAX)
    change["by"] = signed(change.get("by"))
    changed = await store.change(Change(select=select, act=act, limit=1, **change))
    if ref in changed.done:
        return
    page = await store.find(Find(select=select, limit=1))
    if not page.jobs:
        raise JobNotFound(id=ref.id)
    raise NotChangeable(id=ref.id, state=page.jobs[0].state.value)
