"""Shares: the maximum names, slots and settings of one tenant, and pages over them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.core import bounds
from holdfast.core.bounds import HOLD_S_MAX, NOTE_MAX, PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput, TenantFull
from holdfast.core.scope import Scope, ScopeSettings, encode
from holdfast.store import Hold, Put, Setting, Take
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, group_of, job, queue_of, tenant_of

LENGTH = 10 * SECOND
ONE = encode(ScopeSettings(max_running=1))


# -- pages -----------------------------------------------------------------------------------------


async def test_settings_are_listed_in_pages(bench: Bench) -> None:
    """P15: in the order of their names, on from the last one of the page before."""
    names = [f"page/{n:03}" for n in range(7)]
    await bench.store.settings([Put(name, b"1", 0) for name in [*names, "other"]])

    async def page(after: str, limit: int) -> list[str]:
        found = await bench.store.settings(under="page/", after=after, limit=limit)
        return [each.name for each in found]

    assert await page("", 3) == names[:3]
    assert await page(names[2], 3) == names[3:6]
    assert await page(names[5], 3) == names[6:]
    assert await page("page/002x", 2) == names[3:5]
    assert await page(names[6], 3) == []
    assert await page("", 0) == []


async def test_held_names_are_listed_in_pages(bench: Bench) -> None:
    """P15: lapsed ones take no place in a page."""
    names = [f"page/{n:03}" for n in range(7)]
    await bench.store.hold([Take(name, "w1", LENGTH) for name in names])
    await bench.store.hold([Take(f"page/{n:03}x", "w1", SECOND) for n in range(7)])
    bench.clock.advance(2)

    async def page(after: str, limit: int) -> list[str]:
        found = await bench.store.hold(under="page/", after=after, limit=limit)
        return [each.name for each in found]

    assert await page("", 3) == names[:3]
    assert await page(names[2], 3) == names[3:6]
    assert await page(names[5], 3) == names[6:]
    assert await page("page/002x", 2) == names[3:5]
    assert await page("", 0) == []


@pytest.mark.parametrize("limit", [-1, PAGE_MAX + 1])
async def test_a_page_of_names_over_the_limit_is_refused(bench: Bench, limit: int) -> None:
    """P15: InvalidInput names the field."""
    for verb in (bench.store.settings, bench.store.hold):
        with pytest.raises(InvalidInput) as caught:
            await verb(under="", limit=limit)
        assert caught.value.facts["field"] == "limit"


async def test_a_list_of_names_is_a_page_unless_asked_for_less(bench: Bench) -> None:
    """P15: nobody is handed everything there is."""
    names = [f"many/{n:04}" for n in range(PAGE_MAX + 5)]
    for start in range(0, len(names), 500):
        part = names[start : start + 500]
        await bench.store.settings([Put(name, b"", 0) for name in part])
        await bench.store.hold([Take(name, "w1", LENGTH) for name in part])

    settings = await bench.store.settings(under="many/")
    holds = await bench.store.hold(under="many/")

    assert [each.name for each in settings] == names[:PAGE_MAX]
    assert [each.name for each in holds] == names[:PAGE_MAX]


# -- what one hold may be --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("take", "field"),
    [
        (Take("a", "w1", LENGTH, "x" * (NOTE_MAX + 1)), "note"),
        (Take("a", "w1", LENGTH, "\N{SNOWMAN}" * NOTE_MAX), "note"),
        (Take("a", "w1", (int(HOLD_S_MAX) + 1) * SECOND), "length_us"),
        (Take("a", "w1", -1), "length_us"),
    ],
)
async def test_a_hold_too_large_or_too_long_is_refused(
    bench: Bench, take: Take, field: str
) -> None:
    """P15: every note and length has a named limit."""
    with pytest.raises(InvalidInput) as caught:
        await bench.store.hold([take])

    assert caught.value.facts["field"] == field
    assert await bench.store.hold(under="") == []


# -- what one tenant may have ----------------------------------------------------------------------


async def slots(bench: Bench, scope: Scope, *ids: str) -> list[Hold]:
    return await bench.store.hold([Take(scope.slot(id), "w1", LENGTH) for id in ids])


async def test_a_tenant_has_so_many_slots_at_most(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: over all its scopes; the batch with one too many changes nothing, others go on."""
    bench.needs("scopes")
    monkeypatch.setattr(bounds, "SLOTS_MAX", 3)
    await slots(bench, queue_of(), "a", "b")

    with pytest.raises(TenantFull) as caught:
        await slots(bench, group_of(), "c", "d")

    assert (caught.value.facts["tenant"], caught.value.facts["what"]) == (ACME, "slots")
    assert await bench.store.hold(under=group_of().slots) == []
    await slots(bench, group_of(), "c")
    await slots(bench, queue_of(), "a", "b")  # Renewing is no new one.
    await slots(bench, tenant_of(GLOBEX), "a")
    bench.clock.advance(11)
    await slots(bench, tenant_of(), "e", "f")


async def test_a_tenant_has_settings_of_so_many_scopes_at_most(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: a deleted one counts, since its versions are never used again."""
    bench.needs("scopes")
    monkeypatch.setattr(bounds, "SETTINGS_MAX", 3)

    async def put(scope: Scope, value: bytes | None, version: int) -> list[Setting]:
        return await bench.store.settings([Put(scope.name, value, version)])

    await put(queue_of("a"), ONE, 0)
    await put(group_of("a"), ONE, 0)
    await put(tenant_of(), ONE, 0)
    await put(queue_of("a"), None, 1)

    with pytest.raises(TenantFull) as caught:
        await put(queue_of("b"), ONE, 0)

    assert (caught.value.facts["tenant"], caught.value.facts["what"]) == (ACME, "scopes")
    await put(queue_of("a"), ONE, 0)
    await put(tenant_of(GLOBEX), ONE, 0)
    await bench.store.settings([Put("other", b"1", 0)])


@pytest.mark.parametrize(
    ("name", "what", "made"),
    [
        ("QUEUES_MAX", "queues", lambda n: {"queue": f"q{n}"}),
        ("GROUPS_MAX", "groups", lambda n: {"group": f"g{n}"}),
    ],
)
async def test_a_tenant_has_jobs_in_so_many_queues_and_groups_at_most(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    what: str,
    made: Callable[[int], dict[str, str]],
) -> None:
    """P19: what is too much is refused by itself; ended queues and groups make room."""
    bench.needs("scopes")
    monkeypatch.setattr(bounds, name, 3)
    for n in range(3):
        await bench.add(job(f"j{n}", **made(n)))  # type: ignore[arg-type]
    await bench.store.count(None, recount=True)  # Where counts are kept now and then.

    [known, new] = await bench.add(
        job("known", **made(0)),  # type: ignore[arg-type]
        job("new", **made(3)),  # type: ignore[arg-type]
    )

    assert known.created
    assert isinstance(new.error, TenantFull)
    assert (new.error.facts["tenant"], new.error.facts["what"]) == (ACME, what)
    [other] = await bench.add(job("other", tenant=GLOBEX, **made(3)))  # type: ignore[arg-type]
    assert other.created
