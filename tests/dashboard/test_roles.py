"""Who may look, who may act, and whose forms are heard."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.dashboard.visitor import Visit
from tests.service.asgi import Client

from holdfast.dashboard.pages import GETS, POSTS
from holdfast.dashboard.session import FORM_COOKIE, FORM_FIELD, TOKEN_COOKIE
from holdfast.dashboard.words import link

Jobs = dict[str, str]
OPEN = {path: get for path, get in GETS.items() if path != "/ui/platform"}
"""The pages that every reader may see."""


def _paths(table: Mapping[str, object], jobs: Jobs) -> list[str]:
    """Every route, about something that is there."""
    return [
        path.replace("{tenant}", "acme")
        .replace("{queue}", "mail")
        .replace("{id}", jobs["failed"])
        .replace("{act}", "replay")
        .replace("{name}", "nightly")
        for path in table
    ]


async def test_who_is_unknown_is_led_to_the_login(visit: Visit, jobs: Jobs) -> None:
    """From every page, and back to it afterwards; a form is refused."""
    for token in (None, "wrong"):
        nobody = visit(token)
        for path in _paths(GETS, jobs):
            found = await nobody.get(f"{path}?x=1")
            assert (found.status, found.headers["location"].split("?")[0]) == (303, "/ui/login")
        for path in _paths(POSTS, jobs):
            assert (await nobody.send(path)).status == 401


async def test_a_token_without_read_sees_nothing(visit: Visit, jobs: Jobs) -> None:
    """To work is not to look."""
    worker = visit("worker")

    for path in _paths(GETS, jobs):
        assert (await worker.get(path)).status == 403


async def test_a_reader_has_no_buttons_and_is_refused(visit: Visit, jobs: Jobs) -> None:
    """Of all acts; and nothing changes."""
    reader = visit("reader")

    for path in [*_paths(OPEN, jobs)[:-1], link("jobs", "acme", jobs["enqueued"])]:
        text = await reader.page(path)
        acts = text.count('method="post"') - text.count('action="/ui/logout"')
        assert acts == 0, path
    for path in _paths(POSTS, jobs):
        found = await reader.send(path, reason="x", before="9999999999999999")
        assert found.status == 403, path
        assert "no right" in found.body.decode()
    assert (await reader.get("/ui/dead?act=replay")).status == 403


async def test_an_operator_has_buttons(visit: Visit, jobs: Jobs) -> None:
    """Where there is something to do."""
    operator = visit("operator")

    assert "Replay</button>" in await operator.page(link("jobs", "acme", jobs["failed"]))
    assert "Cancel</button>" in await operator.page(link("jobs", "acme", jobs["enqueued"]))
    assert "Pause</button>" in await operator.page(link("queues", "acme", "mail"))
    assert "Replay all that match" in await operator.page("/ui/dead")


async def test_a_producer_may_cancel_and_nothing_else(
    visit: Visit, api: Client, jobs: Jobs
) -> None:
    """What it enqueued it may take back."""
    producer = visit("producer")
    path = link("jobs", "acme", jobs["enqueued"])

    assert "Cancel</button>" in await producer.page(path)
    assert (await producer.send(f"{path}/cancel")).status == 303
    assert (await api.get(f"/v1/jobs/{jobs['enqueued']}")).json["state"] == "canceled"
    assert (await producer.send(f"{link('jobs', 'acme', jobs['failed'])}/replay")).status == 403


async def test_another_tenants_things_are_not_there(visit: Visit, jobs: Jobs) -> None:
    """Neither to look at nor to act on."""
    anna, there = visit("acme"), link("jobs", "globex", jobs["globex"])

    assert (await anna.get(there)).status == 404
    assert (await anna.send(f"{there}/cancel")).status == 404
    assert (await anna.get(link("queues", "globex", "mail"))).status == 403
    assert (await anna.send(f"{link('queues', 'globex', 'mail')}/pause", reason="x")).status == 403
    assert (await anna.get("/ui/jobs?tenant=globex")).status == 403
    assert (await anna.get("/ui/queues?tenant=globex")).status == 403
    for path in ("/", "/ui/jobs", "/ui/queues"):
        assert "globex" not in await anna.page(path)


async def test_a_token_for_some_queues_sees_only_those(visit: Visit, jobs: Jobs) -> None:
    """On every page, and acts on no other."""
    mia = visit("mailer")

    assert (await mia.get(link("jobs", "acme", jobs["enqueued"]))).status == 404
    assert (await mia.send(f"{link('jobs', 'acme', jobs['enqueued'])}/cancel")).status == 404
    assert (await mia.send(f"{link('queues', 'acme', 'crawl')}/pause", reason="x")).status == 403
    assert (await mia.get("/ui/jobs?queue=crawl")).status == 403
    for path in ("/", "/ui/jobs", "/ui/queues"):
        assert link("queues", "acme", "crawl") not in await mia.page(path)
        assert jobs["enqueued"] not in await mia.page(path)


# -- forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoiled",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"host": "evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_a_form_of_another_site_is_refused(
    visit: Visit, api: Client, jobs: Jobs, spoiled: dict[str, str]
) -> None:
    """Although the browser sent the cookies along."""
    operator, path = visit("operator"), link("jobs", "acme", jobs["enqueued"])

    found = await operator.send(f"{path}/cancel", spoiled)

    assert found.status == 403
    assert (await api.get(f"/v1/jobs/{jobs['enqueued']}")).json["state"] == "enqueued"


async def test_a_form_without_its_token_is_refused(visit: Visit, jobs: Jobs) -> None:
    """Also with a wrong one, and when the browser has no cookie for it."""
    operator, path = visit("operator"), f"{link('jobs', 'acme', jobs['enqueued'])}/cancel"
    await operator.get("/ui/jobs")

    assert (await operator.send(path, **{FORM_FIELD: ""})).status == 403
    assert (await operator.send(path, **{FORM_FIELD: "x" * 43})).status == 403
    kept = operator.cookies.pop(FORM_COOKIE)
    operator.cookies[FORM_COOKIE] = ""
    assert (await operator.send(path, **{FORM_FIELD: kept})).status == 403


async def test_what_is_no_form_is_refused(visit: Visit, jobs: Jobs) -> None:
    """JSON, too many fields, and too much."""
    operator, path = visit("operator"), f"{link('jobs', 'acme', jobs['enqueued'])}/cancel"
    await operator.get("/ui/jobs")

    assert (await operator.send(path, {"content-type": "application/json"})).status == 422
    assert (await operator.send(path, long="x" * 70_000)).status == 422
    assert (await operator.send(path, **{f"f{n}": "x" for n in range(60)})).status == 422


# -- the login -------------------------------------------------------------------------------------


async def test_a_pasted_token_is_kept_in_a_strict_cookie(visit: Visit) -> None:
    """That no script reads and no other site sends; signing out takes it away."""
    visitor = visit(None)

    entered = await visitor.send("/ui/login", token="reader", next="/ui/queues")

    assert (entered.status, entered.headers["location"]) == (303, "/ui/queues")
    cookie = entered.headers["set-cookie"].lower()
    assert cookie.startswith(TOKEN_COOKIE)
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "; secure" not in cookie
    assert "Sign out" in await visitor.page("/ui/queues")
    left = await visitor.send("/ui/logout")
    assert (left.status, left.headers["location"]) == (303, "/ui/login")
    assert (await visitor.get("/ui/queues")).status == 303


@pytest.mark.parametrize(
    ("token", "status"),
    [("wrong", 401), ("worker", 403), ("", 422), ("é", 422), ("x" * 2801, 422)],
)
async def test_a_token_that_does_not_hold_is_not_kept(
    visit: Visit, token: str, status: int
) -> None:
    """The page says why."""
    visitor = visit(None)

    found = await visitor.send("/ui/login", token=token)

    assert found.status == status
    assert TOKEN_COOKIE not in visitor.cookies
    assert 'role="alert"' in found.body.decode()


@pytest.mark.parametrize(
    "onward", ["https://evil.example", "//evil.example", "/\\evil", "/ui/\\..", "javascript:x"]
)
async def test_the_login_leads_to_no_other_site(visit: Visit, onward: str) -> None:
    """Whatever its address says."""
    found = await visit(None).send("/ui/login", token="reader", next=onward)

    assert found.headers["location"] == "/"


async def test_the_cookie_opens_no_door_of_the_api(visit: Visit) -> None:
    """It asks for a header, which no other site can make a browser send."""
    found = await visit("operator").get("/v1/jobs", holdfast_tenant="acme")

    assert found.status == 401
