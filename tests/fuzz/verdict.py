"""After the attack: what the store itself says of the promises."""

from __future__ import annotations

from collections import Counter

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.errors import HoldfastError
from holdfast.core.finding import Level
from holdfast.core.job import EventKind, State
from holdfast.core.scope import TENANT_KINDS
from holdfast.operate import audit, examine
from holdfast.store import Find, Selection, Store
from holdfast.stores import open_store

TURNS_MAX = 1000


async def verdict(url: str, innocent: str) -> list[str]:
    """Every promise that was not kept, in words."""
    try:
        return await _verdict(url, innocent)
    except HoldfastError as error:
        return [f"the store cannot be read any more: {error}"]


async def _verdict(url: str, innocent: str) -> list[str]:
    store = open_store(url)
    await store.open()
    try:
        found = [f"{each.promise}: {each.words}" for each in (await audit(store)).breaches]
        found += await _unfinished(store, innocent)
        found += await _leaked(store)
    finally:
        await store.close()
    for finding in await examine(url):
        if finding.level is Level.BAD:
            found.append(f"doctor: {finding.what}: {finding.words}")
    return found


async def _unfinished(store: Store, tenant: str) -> list[str]:
    """P1, P4: each job of the innocent tenant has run once, at its first attempt."""
    found: list[str] = []
    after = None
    while True:
        select = Selection(tenant=tenant)
        page = await store.find(Find(select=select, after=after, limit=PAGE_MAX))
        found += [
            f"{job.id} of the innocent tenant is {job.state.value} at attempt {job.attempt}"
            for job in page.jobs
            if job.state is not State.COMPLETED or job.attempt != 1
        ]
        if page.cursor is None:
            return found + await _doubled(store, tenant)
        after = page.cursor


async def _doubled(store: Store, tenant: str) -> list[str]:
    leased: Counter[str] = Counter()
    after = 0
    while True:
        page = await store.events(tenant, after, PAGE_MAX)
        leased.update(one.job_id for one in page.events if one.kind is EventKind.LEASED)
        after = page.cursor
        if len(page.events) < PAGE_MAX:
            return [f"{id} was leased {n} times" for id, n in leased.items() if n > 1]


async def _leaked(store: Store) -> list[str]:
    """P13: a count of the jobs themselves agrees with the counts that were kept."""
    found = []
    for kind in TENANT_KINDS:
        after = None
        for _ in range(TURNS_MAX):
            page = await store.count(None, by=kind, after=after, recount=after is None)
            found += [
                f"{tally.tenant} {tally.queue}: running was off by {tally.correction}"
                for tally in page
                if tally.correction
            ]
            if len(page) < PAGE_MAX:
                break
            after = (page[-1].tenant, page[-1].queue)
    return found[:20]
