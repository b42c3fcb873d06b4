"""Settings of scopes: checked before anything changes, compare-and-set, and recorded as events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.bounds import GROUP_MAX, PAGE_MAX, WEIGHT_MAX
from holdfast.core.errors import InvalidInput, StaleSetting
from holdfast.core.job import Event, EventKind
from holdfast.core.rate import Rate, rate
from holdfast.core.scope import GroupRules, Pause, Scope, ScopeSettings, decode, encode
from holdfast.store import Put
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    SCOPES,
    group_of,
    ids,
    queue_of,
    tenant_of,
)
from holdfast.testing.contract.inside import crawl, each_scope, each_tenant_scope

MINUTE = 60_000_000
LONG = "g" * (GROUP_MAX + 1)


async def configures(bench: Bench, tenant: str | None = None) -> list[Event]:
    bench.needs("event_log")
    page = await bench.store.events(tenant, 0, PAGE_MAX)
    return [event for event in page.events if event.kind is EventKind.CONFIGURED]


async def unchanged(bench: Bench) -> bool:
    """Nothing is stored, nothing is told, and nothing holds a job back."""
    if bench.store.capabilities.event_log:
        assert await configures(bench) == []
    assert await bench.store.settings(under="") == []
    await crawl(bench, "a", "b", "c")
    return ids(await bench.claim(10)) == ["a", "b", "c"]


BAD: list[tuple[str, Scope, dict[str, Any]]] = [
    ("max_running", tenant_of(), {"max_running": 0}),
    ("max_running", queue_of(), {"max_running": -1}),
    ("max_running", group_of(), {"max_running": 10**9}),
    ("groups.max_running", queue_of(), {"groups": GroupRules(max_running=0)}),
    ("weight", tenant_of(), {"weight": 0}),
    ("weight", tenant_of(), {"weight": WEIGHT_MAX + 1}),
    ("max_queued", tenant_of(), {"max_queued": 0}),
    ("max_bytes", tenant_of(), {"max_bytes": -5}),
    ("rate", tenant_of(), {"rate": Rate(0, MINUTE, 1)}),
    ("rate", queue_of(), {"rate": Rate(1, 0, 1)}),
    ("rate", queue_of(), {"rate": Rate(1, -MINUTE, 1)}),
    ("rate.burst", group_of(), {"rate": Rate(1, MINUTE, 0)}),
    ("groups.rate", queue_of(), {"groups": GroupRules(rate=Rate(-1, MINUTE, 1))}),
    ("reason", group_of(), {"paused": Pause("", "ann")}),
    ("author", group_of(), {"paused": Pause("why", "")}),
    ("reason", group_of(), {"paused": Pause("x" * 257, "ann")}),
    ("weight", queue_of(), {"weight": 2}),
    ("weight", group_of(), {"weight": 2}),
    ("max_queued", queue_of(), {"max_queued": 2}),
    ("max_bytes", group_of(), {"max_bytes": 2}),
    ("ordered", tenant_of(), {"ordered": True}),
    ("ordered", queue_of(), {"ordered": False}),
    ("groups", tenant_of(), {"groups": GroupRules(max_running=1)}),
    ("groups", group_of(), {"groups": GroupRules(max_running=1)}),
    ("group", group_of(LONG), {"max_running": 1}),
    ("queue", queue_of("q" * 129), {"max_running": 1}),
    ("tenant", tenant_of("t" * 129), {"max_running": 1}),
    ("group", group_of(" padded"), {"max_running": 1}),
]


@pytest.mark.parametrize(("field", "scope", "fields"), BAD, ids=lambda each: str(each)[:40])
async def test_a_bad_setting_is_refused_by_name(
    bench: Bench, field: str, scope: Scope, fields: dict[str, Any]
) -> None:
    """P15: InvalidInput names the field, and nothing is changed."""
    bench.needs("scopes")
    with pytest.raises(InvalidInput) as caught:
        await bench.store.settings([Put(scope.name, encode(ScopeSettings(**fields)), 0)])

    assert caught.value.facts["field"] == field
    assert await unchanged(bench)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'"10/s"',
        b'{"max_running": "3"}',
        b'{"max_running": 1.5}',
        b'{"max_runing": 3}',
        b'{"rate": "100"}',
        b'{"paused": true}',
        b"\xff",
    ],
)
async def test_what_is_no_setting_of_a_scope_is_refused(bench: Bench, text: bytes) -> None:
    """P15: the error names the setting; a misspelt name is not ignored."""
    bench.needs("scopes")
    with pytest.raises(InvalidInput) as caught:
        await bench.store.settings([Put(queue_of().name, text, 0)])

    assert caught.value.facts["field"] == queue_of().name
    assert await unchanged(bench)


async def test_a_misspelt_word_is_answered_with_the_right_one(bench: Bench) -> None:
    """P15: an error says what to do."""
    bench.needs("scopes")
    with pytest.raises(InvalidInput, match="max_running"):
        await bench.store.settings([Put(queue_of().name, b'{"max_runing": 3}', 0)])


@pytest.mark.parametrize("value", [b"{}", None])
@pytest.mark.parametrize(
    "name",
    [
        "scope/",
        "scope/world/4:acme/",
        "scope/tenant/acme/",
        "scope/tenant/4:acme",
        "scope/tenant/9:acme/",
        "scope/tenant/04:acme/",
        "scope/tenant/4:acme/part",
        "scope/queue/4:acme/",
        "scope/group/4:acmeXcrawl",
    ],
)
async def test_an_unknown_scope_is_refused(bench: Bench, name: str, value: bytes | None) -> None:
    """P15: in a put and in a delete, with all of its batch."""
    bench.needs("scopes")
    good = Put(tenant_of().name, encode(ScopeSettings(max_running=1)), 0)

    with pytest.raises(InvalidInput) as caught:
        await bench.store.settings([good, Put(name, value, 0)])

    assert caught.value.facts["field"] in ("scope", "queue")
    assert await unchanged(bench)


@each_scope
async def test_a_stale_setting_of_a_scope_is_refused(bench: Bench, scope: Scope) -> None:
    """P15: compare-and-set; the loser is told the version and changes nothing."""
    await bench.configure(scope, max_running=2)

    with pytest.raises(StaleSetting) as caught:
        await bench.store.settings([Put(scope.name, encode(ScopeSettings(max_running=9)), 0)])

    assert caught.value.facts["version"] == 1
    await crawl(bench, "a", "b", "c")
    assert ids(await bench.claim(10)) == ["a", "b"]


async def test_one_bad_setting_stops_all_of_its_batch(bench: Bench) -> None:
    """P15: all or nothing, wherever the bad one stands."""
    bench.needs("scopes")
    good = [Put(scope.name, encode(ScopeSettings(max_running=1)), 0) for scope in SCOPES]
    bad = Put(group_of("bad").name, encode(ScopeSettings(weight=5)), 0)

    for puts in ([bad, *good], [good[0], bad, *good[1:]], [*good, bad]):
        with pytest.raises(InvalidInput):
            await bench.store.settings(puts)

    assert await unchanged(bench)


async def test_settings_of_many_scopes_are_set_together(bench: Bench) -> None:
    """P15: and listed by kind and tenant."""
    bench.needs("scopes")
    value = encode(ScopeSettings(max_running=1))

    await bench.store.settings([Put(scope.name, value, 0) for scope in SCOPES])

    listed = await bench.store.settings(under="scope/")
    assert sorted(each.name for each in listed) == sorted(scope.name for scope in SCOPES)
    await crawl(bench, "a", "b")
    assert ids(await bench.claim(10)) == ["a"]


async def test_everything_that_can_be_set_is_kept(bench: Bench) -> None:
    """P1: what was stored is what is read."""
    pause = Pause("migration of the mail server — Ümlaut", "ann@example.com")
    wanted = {
        tenant_of(): ScopeSettings(
            max_running=5, rate=rate("10/s", 20), weight=7, max_queued=9, max_bytes=10**6
        ),
        queue_of(): ScopeSettings(
            slots_count=True,
            groups=GroupRules(max_running=2, rate=rate("1/m"), ordered=False),
        ),
        group_of("a/b — ü"): ScopeSettings(ordered=True, paused=pause),
    }
    for scope, settings in wanted.items():
        await bench.configure(scope, **msgspec.structs.asdict(settings))

    for scope, settings in wanted.items():
        stored = await bench.setting(scope)
        assert stored is not None
        assert decode(scope.name, stored.value) == settings


@each_tenant_scope
async def test_a_change_of_settings_is_an_event(bench: Bench, scope: Scope) -> None:
    """P14: set, changed and deleted, with the new value, in the scope's tenant."""
    await bench.configure(scope, max_running=2)
    await bench.configure(scope, max_running=3)
    await bench.configure(scope)

    events = await configures(bench, ACME)

    assert [event.job_id for event in events] == [scope.name] * 3
    assert {event.tenant for event in events} == {ACME}
    notes = [event.note or "" for event in events]
    assert [decode(scope.name, note.encode()).max_running for note in notes[:2]] == [2, 3]
    assert notes[2] == ""
    assert events[0].at == bench.clock.now()


async def test_the_events_of_settings_keep_to_their_tenant(bench: Bench) -> None:
    """P7: a tenant does not see the limits of another."""
    await bench.configure(tenant_of(GLOBEX), max_running=2)

    assert await configures(bench, ACME) == []
    assert len(await configures(bench, GLOBEX)) == 1


async def test_other_settings_are_no_events(bench: Bench) -> None:
    """P14: cursors and schedules change all the time."""
    bench.needs("scopes")
    await bench.store.settings([Put("cursor/a", b"1", 0), Put("scopes", b"1", 0)])

    assert await configures(bench) == []
