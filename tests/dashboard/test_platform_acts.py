"""The forms of the platform's page: who may send them, what they change, and in whose name."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from tests.dashboard.conftest import Lacking
from tests.dashboard.visitor import Visit, elements, tidy

from holdfast import operate
from holdfast.core.scope import PLATFORM, Scope, ScopeKind
from holdfast.dashboard.session import FORM_FIELD
from holdfast.service.service import Service
from holdfast.store import Put

EVIL = "<b>x</b>"
SCOPES = (PLATFORM, Scope("", ScopeKind.QUEUE, "mail"), Scope("", ScopeKind.TYPE, "send"))
ACTS = ("limit", "pause", "resume")
each_scope = pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.kind.value)


def path(act: str, scope: Scope) -> str:
    query = urlencode({"kind": scope.kind.value, "name": scope.part})
    return f"/ui/platform/{act}?{query}" if act else f"/ui/platform?{query}"


@pytest.fixture(autouse=True)
async def known(service: Service) -> None:
    """A job type that an app has published."""
    await service.store.settings([Put("type/send", b'{"queue": "mail"}', 0)])


async def limits(service: Service, scope: Scope) -> tuple[int | None, str, str]:
    """The running limit, the rate and the reason of the pause."""
    state = (await operate.scopes(service.store, "")).get(scope)
    if state is None:
        return None, "", ""
    said, paused = state.settings.rate, state.settings.paused
    reason = "" if paused is None else f"{paused.author}: {paused.reason}"
    return state.settings.max_running, "" if said is None else said.words, reason


@each_scope
async def test_a_scope_is_paused_and_resumed(visit: Visit, service: Service, scope: Scope) -> None:
    """With a reason, by who is signed in, and told in the event log."""
    machine = visit("machine")

    assert (await machine.send(path("pause", scope), reason=" ")).status == 422
    paused = await machine.send(path("pause", scope), reason=f"down {EVIL}")

    assert paused.headers["location"] == "/ui/platform?did=paused_all"
    assert await limits(service, scope) == (None, "", f"m: down {EVIL}")
    text = await machine.page(paused.headers["location"])
    assert "It is paused for all tenants" in text
    assert "down &lt;b&gt;x&lt;/b&gt;, by m" in text
    assert EVIL not in text
    resumed = await machine.send(path("resume", scope), reason="up again")
    assert resumed.headers["location"] == "/ui/platform?did=resumed_all"
    assert await limits(service, scope) == (None, "", "")
    events = (await service.store.events(None, 0, 100)).events
    assert [event.by for event in events if event.kind == "configured"][-2:] == [
        f"m: down {EVIL}",
        "m: up again",
    ]


@each_scope
async def test_limits_are_set_and_removed(visit: Visit, service: Service, scope: Scope) -> None:
    """An empty field removes one, and the others stay as the form has them."""
    machine = visit("machine")

    fields = {"max_running": "20", "rate": "100/s", "burst": "7", "reason": "agreed"}
    done = await machine.send(path("limit", scope), version="0", **fields)
    assert done.headers["location"] == "/ui/platform?did=limited"
    assert await limits(service, scope) == (20, "100/s burst 7", "")
    [event] = [
        event
        for event in (await service.store.events(None, 0, 100)).events
        if event.kind == "configured"
    ]
    assert event.by == "m: agreed"

    shown = await machine.page(path("", scope))
    kept = {
        str(attrs["name"]): str(attrs.get("value"))
        for tag, attrs in elements(shown)
        if tag == "input" and attrs.get("name") in ("version", "max_running", "rate", "burst")
    }
    assert kept == {"version": "1", "max_running": "20", "rate": "100/s", "burst": "7"}
    await machine.send(path("limit", scope), **{**kept, "max_running": ""})
    assert await limits(service, scope) == (None, "100/s burst 7", "")
    await machine.send(path("limit", scope), version="2", max_running="3")
    assert await limits(service, scope) == (3, "", "")


async def test_a_limit_that_changed_meanwhile_is_not_overwritten(
    visit: Visit, service: Service
) -> None:
    """The form names the version that it showed."""
    await operate.platform(service.store).set(max_running=9)

    late = await visit("machine").send(path("limit", PLATFORM), version="0", max_running="5")

    assert late.status == 409
    assert await limits(service, PLATFORM) == (9, "", "")


@each_scope
@pytest.mark.parametrize("token", ["reader", "operator", "acme", "producer", "mailer", "postman"])
async def test_others_are_refused(visit: Visit, service: Service, token: str, scope: Scope) -> None:
    """P19: whoever has not the platform's right in all queues; and nothing changes."""
    visitor = visit(token)
    await operate.platform(service.store).set(max_running=9)
    before = await service.store.settings(under="scope/")

    for act in ACTS:
        found = await visitor.send(path(act, scope), reason="x", version="1", max_running="5")
        assert found.status == 403, act
        assert "no right" in found.body.decode()
    assert (await visitor.get(path("", scope))).status == 403
    assert await service.store.settings(under="scope/") == before


async def test_a_token_for_some_types_limits_only_those(visit: Visit, service: Service) -> None:
    """P19: as over HTTP; it is not shown the others."""
    platform, sender = operate.platform(service.store), visit("sender")
    await service.store.settings([Put("type/other", b'{"queue": "mail"}', 0)])
    await platform.type("other").set(rate="4321/s")
    other = Scope("", ScopeKind.TYPE, "other")

    for act in ACTS:
        found = await sender.send(path(act, other), reason="x", version="1", max_running="5")
        assert found.status == 403, act
    assert (await sender.get(path("", other))).status == 403
    assert (await sender.send(path("limit", SCOPES[2]), version="0", rate="5/s")).status == 303

    text = await sender.page("/ui/platform")
    assert "4321/s" not in text
    assert ">send<" in text
    assert await limits(service, other) == (None, "4321/s", "")


@pytest.mark.parametrize(
    ("query", "fields", "named"),
    [
        ("", {"max_running": "5"}, "kind"),
        ("kind=tenant&name=acme", {"max_running": "5"}, "kind"),
        ("kind=queue", {"max_running": "5"}, "queue"),
        ("kind=platform&name=x", {"max_running": "5"}, "no part"),
        ("kind=queue&name=mail", {"max_running": "0"}, "max_running"),
        ("kind=queue&name=mail", {"max_running": "many"}, "max_running"),
        ("kind=queue&name=mail", {"rate": "100"}, "rate"),
        ("kind=queue&name=mail", {"rate": EVIL}, "rate"),
        ("kind=queue&name=mail", {"burst": "5"}, "burst"),
        ("kind=queue&name=mail", {"max_running": "5", "version": ""}, "version"),
        ("kind=type&name=sned", {"max_running": "5"}, "no job type"),
    ],
)
async def test_a_change_that_makes_no_sense_is_refused(
    visit: Visit, service: Service, query: str, fields: dict[str, str], named: str
) -> None:
    """By field, and nothing is changed."""
    sent = {"version": "0", **fields}
    found = await visit("machine").send(f"/ui/platform/limit?{query}", **sent)

    text = found.body.decode()
    assert found.status == 422, text
    assert named in text
    assert EVIL not in text
    assert await service.store.settings(under="scope/") == []


async def test_a_name_with_markup_is_inert_wherever_it_can_be_chosen(
    visit: Visit, service: Service
) -> None:
    """In the table, in addresses and in the form."""
    evil = Scope("", ScopeKind.QUEUE, f'"><img src=x onerror=y()>{EVIL}&a=b#c')
    machine = visit("machine")

    shown = await machine.page(path("", evil))
    await machine.send(path("limit", evil), version="0", max_running="2")

    text = await machine.page("/ui/platform")
    for page in (shown, text):
        assert [tag for tag, _ in elements(page) if tag in ("img", "b")] == []
    [again] = [
        str(attrs["href"]).removesuffix("#change")
        for _, attrs in elements(text)
        if str(attrs.get("href", "")).startswith("/ui/platform?kind=queue")
    ]
    assert "2" in [attrs.get("value") for _, attrs in elements(await machine.page(again))]
    assert await limits(service, evil) == (2, "", "")


async def test_a_form_of_another_site_is_refused(visit: Visit, service: Service) -> None:
    """Although the browser sent the cookies along; so is one without its token."""
    machine = visit("machine")

    for act in ACTS:
        fields = {"reason": "x", "version": "0", "max_running": "5"}
        away = {"origin": "https://evil.example"}
        assert (await machine.send(path(act, PLATFORM), away, **fields)).status == 403
        fields[FORM_FIELD] = "x" * 43
        assert (await machine.send(path(act, PLATFORM), **fields)).status == 403
    assert await service.store.settings(under="scope/") == []


async def test_acts_are_offered_to_the_platform_only(visit: Visit, service: Service) -> None:
    """One button of each row leads to the form, another resumes."""
    await operate.platform(service.store).queue("mail").pause("down", "ann")

    text = await visit("machine").page("/ui/platform")

    assert 'action="/ui/platform/resume?kind=queue&amp;name=mail"' in text
    assert 'href="/ui/platform?kind=queue&amp;name=mail#change"' in text
    assert "Limit or pause" in tidy(text)


async def test_a_store_without_these_limits_offers_none(
    visit: Visit, service: Service, lacking: Lacking
) -> None:
    """And refuses a form all the same."""
    lacking("platform", "tiers")
    machine = visit("machine")

    text = await machine.page("/ui/platform?kind=queue&name=mail")

    assert "This store keeps no limits of all tenants" in text
    assert "This store keeps no tiers" in text
    assert "<form" not in text.partition("<main")[2]
    refused = await machine.send(path("pause", SCOPES[1]), reason="x")
    assert refused.status == 501
    assert "does not support limits of the platform" in tidy(refused.body.decode())
    assert await service.store.settings(under="scope/") == []
