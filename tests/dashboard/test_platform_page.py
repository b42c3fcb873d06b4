"""The platform's page: limits over all tenants, and tiers."""

from __future__ import annotations

import pytest
from tests.dashboard.visitor import Visit, tidy

from holdfast import operate
from holdfast.service.service import Service

EVIL = "<b>x</b>"


@pytest.mark.parametrize("token", ["reader", "operator", "acme", "mailer"])
async def test_only_the_platform_sees_it(visit: Visit, token: str) -> None:
    """P7: it tells of all tenants. Others have no link to it."""
    visitor = visit(token)

    assert (await visitor.get("/ui/platform")).status == 403
    assert 'href="/ui/platform"' not in await visitor.page("/ui/queues")


async def test_an_empty_platform_says_what_to_do(visit: Visit) -> None:
    """The commands are named."""
    text = await visit("machine").page("/ui/platform")

    assert "holdfast limit --platform" in text
    assert "holdfast tier pro" in text
    assert 'href="/ui/platform" aria-current="page"' in text


async def test_limits_pauses_and_tiers_are_shown(visit: Visit, service: Service) -> None:
    """With what runs; markup in names is inert."""
    platform = operate.platform(service.store)
    await platform.set(max_running=500)
    await platform.queue("mail").set(max_running=20, rate="100/s")
    await platform.queue(EVIL).pause(EVIL, "ann")
    await platform.defaults().set(max_running=5, group={"rate": "1/s"})
    await platform.tier("pro").set(weight=3, ceiling={"max_running": 9})

    text = await visit("machine").page("/ui/platform")

    for said in ("the whole store", "0 of 500", "100/s", "at most 5 running", "weight 3", ">pro<"):
        assert said in text, said
    assert text.index("the whole store") < text.index(">mail<")
    assert "queue mail 0 0 of 20 20 100/s no" in tidy(text), "the row begins with what it is"
    assert EVIL not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text
