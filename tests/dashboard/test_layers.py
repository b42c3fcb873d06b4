"""The limits that count at each queue, and the layer that gave each of them."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.dashboard.conftest import Lacking
from tests.dashboard.visitor import Visit, tidy

from holdfast import listings, operate
from holdfast.core.job import Envelope, NewJob, Rules
from holdfast.core.scope import GroupRules
from holdfast.dashboard import platform_views, queue_views
from holdfast.dashboard.words import link
from holdfast.dispatch import Dispatcher
from holdfast.service.service import Service
from holdfast.store import Store

EVIL = "<b>x</b>"


def new(tenant: str, queue: str = "mail") -> NewJob:
    envelope = Envelope("send", "json", 1, b"{}")
    return NewJob(tenant=tenant, id=queue, queue=queue, rules=Rules(), envelope=envelope)


async def layered(store: Store) -> None:
    """Defaults, two tiers with one tenant in each, and settings of a tenant's own."""
    platform = operate.platform(store)
    await platform.defaults().set(rate="50/s", max_queued=900, group={"rate": "1/s"})
    await platform.tier("free").set(max_running=2, queue={"max_running": 1})
    await platform.tier("pro").set(
        max_running=5, weight=3, ceiling={"max_running": 40}, group={"max_running": 7}
    )
    await store.enqueue([new(tenant) for tenant in ("acme", "globex", "initech")])
    await operate.scope(store, "acme").set(tier="free")
    await operate.scope(store, "globex").set(tier="pro", max_running=60, max_queued=70)
    await operate.scope(store, "globex", queue="mail").set(
        max_running=9, groups=GroupRules(ordered=True)
    )


async def row(visit: Visit, token: str, tenant: str) -> str:
    """What a reader sees of the tenant's queue in the list; the page of the queue says the same."""
    visitor = visit(token)
    listed = (await visitor.page(f"/ui/queues?tenant={tenant}")).partition("<tbody>")[2]
    alone = await visitor.page(link("queues", tenant, "mail"))
    limits = tidy(listed.partition('data-label="Limits">')[2].partition("</td>")[0])
    assert limits in tidy(alone), alone
    return tidy(listed)


async def test_each_value_has_its_layer(visit: Visit, service: Service) -> None:
    """Also the tenant's own; a ceiling says so."""
    await layered(service.store)

    free = await row(visit, "reader", "acme")
    pro = await row(visit, "reader", "globex")
    other = await row(visit, "reader", "initech")

    assert "acme tier free" in free
    assert "at most 1 running (tier free) , 1/s per group (defaults) tenant: " in free
    assert "tenant: at most 2 running (tier free) , 50/s (defaults) , at most 900" in free
    assert "globex tier pro" in pro
    assert "at most 9 running (own) , at most 7 per group (tier pro) , 1/s per group" in pro
    assert "groups in order tenant: at most 40 running (ceiling of tier pro) , 50/s" in pro
    assert "weight 3 (tier pro) , at most 70 waiting" in pro
    assert "at most 70 waiting (own)" in pro
    assert "tenant: 50/s (defaults) , at most 900 waiting (defaults)" in other
    assert "tier" not in other


async def test_a_change_of_a_tier_is_shown_at_once(visit: Visit, service: Service) -> None:
    """It is read with every page."""
    await layered(service.store)
    await operate.platform(service.store).tier("free").set(max_running=8)

    assert "tenant: at most 8 running (tier free)" in await row(visit, "reader", "acme")


async def test_a_tenant_sees_its_own_values_only(visit: Visit, service: Service) -> None:
    """P7: with the layer, without other tiers and limits of the platform."""
    await layered(service.store)
    await operate.platform(service.store).queue("mail").set(max_running=4321)

    text = await row(visit, "acme", "acme")

    assert "tenant: at most 2 running (tier free)" in text
    for hidden in ("pro", "4\u2009321", "all tenants"):
        assert hidden not in text


async def test_the_store_and_the_queue_of_all_tenants_are_told_apart(
    visit: Visit, service: Service
) -> None:
    """Both limit the same row."""
    await layered(service.store)
    platform = operate.platform(service.store)
    await platform.set(max_running=500)
    await platform.queue("mail").set(max_running=20, rate="100/s")

    text = await row(visit, "machine", "initech")

    assert "all tenants: at most 20 running, 100/s whole store: at most 500 running" in text


async def test_markup_in_the_name_of_a_tier_is_inert(visit: Visit, service: Service) -> None:
    """Beside its tenant and its values."""
    await operate.platform(service.store).tier(EVIL).set(max_running=2)
    await service.store.enqueue([new("acme")])
    await operate.scope(service.store, "acme").set(tier=EVIL)

    for path in ("/ui/queues", link("queues", "acme", "mail"), "/ui/platform"):
        text = await visit("machine").page(path)
        assert EVIL not in text, path
        assert "&lt;b&gt;x&lt;/b&gt;" in text, path


async def test_a_store_without_tiers_shows_what_is_set(
    visit: Visit, service: Service, lacking: Lacking
) -> None:
    """As a queue's and a tenant's own."""
    await service.store.enqueue([new("acme")])
    await operate.scope(service.store, "acme").set(max_running=5)
    await operate.scope(service.store, "acme", queue="mail").set(rate="9/s")
    lacking("tiers")

    assert "9/s tenant: at most 5 running" in await row(visit, "reader", "acme")
    lacking("scopes", "platform")
    assert "none" in await row(visit, "machine", "acme")


# -- many ------------------------------------------------------------------------------------------


async def filled(store: Store, number: int) -> None:
    """So many tenants, each in a tier and with one queue that has a limit."""
    await operate.platform(store).tier("pro").set(max_running=5)
    tenants = [f"t{n}" for n in range(number)]
    await store.enqueue([new(tenant) for tenant in tenants])
    for tenant in tenants:
        await operate.scope(store, tenant).set(tier="pro")
        await operate.scope(store, tenant, queue="mail").set(max_running=3)


@pytest.mark.parametrize("path", ["/ui/queues", link("queues", "t0", "mail"), "/ui/platform"])
async def test_the_calls_of_a_page_do_not_grow_with_its_rows(
    visit: Visit, service: Service, path: str
) -> None:
    """P19: settings and tiers are read once for all rows."""
    store = service.store
    assert isinstance(store, Dispatcher)
    counts = []
    for number in (2, 400):
        await filled(store, number)
        calls: Counter[str] = Counter()
        store.observe = lambda call, calls=calls: calls.update([call.verb])
        text = await visit("machine").page(path)
        store.observe = None
        assert "at most 5 running" in text
        del calls["hold"]  # The clock of the store, which is looked at now and then.
        counts.append(calls)

    assert counts[0] == counts[1]
    assert sum(counts[0].values()) < 20


async def test_limits_that_were_not_read_are_not_guessed(
    visit: Visit, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant whose tier is unknown is not said to have the defaults."""
    await operate.platform(service.store).defaults().set(max_running=8)
    await filled(service.store, 4)
    await operate.platform(service.store).set(max_running=500)
    for module in (listings, queue_views):
        monkeypatch.setattr(module, "SCOPES_MAX", 7)  # The store, four queues and two tenants.
    machine = visit("machine")

    text = tidy(await machine.page("/ui/queues"))

    assert text.count("tenant: at most 5 running (tier pro)") == 2
    assert text.count("not read") == 3  # Two rows, and the words below.
    assert "(defaults)" not in text
    assert "at most 5 running (tier pro)" in tidy(await machine.page("/ui/queues?tenant=t3"))


async def test_the_tenants_of_each_tier_are_counted(
    visit: Visit, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a bound, which the page tells."""
    await filled(service.store, 4)
    await operate.platform(service.store).tier("free").set(max_running=1)
    await operate.scope(service.store, "t3").set(tier="free")
    machine = visit("machine")

    whole = tidy(await machine.page("/ui/platform"))
    monkeypatch.setattr(platform_views, "TENANTS_MAX", 3)
    cut = tidy(await machine.page("/ui/platform"))

    assert "pro 3 at most 5 running" in whole
    assert "free 1 at most 1 running" in whole
    assert "or more" not in whole
    assert "pro 3 or more" in cut
    assert "free 0 or more" in cut
    assert "Only the first 3 tenants" in cut
