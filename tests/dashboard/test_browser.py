"""The dashboard in a real browser, against a real socket: live, inert, and by its own rules."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import uvicorn
from playwright.async_api import Browser, Page, async_playwright, expect
from tests.service.asgi import Client

from holdfast import operate
from holdfast.dashboard import acts
from holdfast.dashboard.words import link
from holdfast.service.app import application
from holdfast.service.pages import dashboard
from holdfast.service.run import listen
from holdfast.service.service import Service

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LIVE_MS = 2000
"""How late a change may show."""
START_S = 20

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")


@pytest.fixture
async def url(service: Service, api: Client) -> AsyncIterator[str]:
    """The service on a port of this machine."""
    bound = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        application(service, mounts=[dashboard], owns_store=False),
        lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[bound]))
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    service.close()
    server.should_exit = True
    await serving
    bound.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with asyncio.timeout(START_S * 5), async_playwright() as made:
        found = await made.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        await found.close()


async def remembering(service: Service, long: str) -> None:
    """A job whose names and values have no place to break a line."""
    api = Client(application(service, owns_store=False), {"holdfast-tenant": "acme"})
    api = api.with_headers(authorization="Bearer machine")
    await api.post("/v1/jobs", {"type": "send", "id": "long", "queue": "long"})
    [lease] = (await api.post("/v1/claim", {"queues": ["long"], "worker": long})).json["leases"]
    value = {"receipt": long * 4}
    entries = [{"kind": kind, "name": long, "value": value} for kind in ("step", "position")]
    ack = {
        "id": "long", "token": lease["token"], "outcome": "fail", "error": long, "after": 3600,
        "error_kind": long, "traceback": long * 4, "entries": entries, "log": [long * 4],
    }  # fmt: skip
    await api.post("/v1/jobs/long/signal", {"name": long, "value": long})
    assert (await api.post("/v1/ack", {"acks": [ack]})).status == 200


@contextlib.asynccontextmanager
async def signed_in(browser: Browser, url: str, token: str) -> AsyncIterator[Page]:
    """A page after the login; whatever it complains of on its console fails the test."""
    context = await browser.new_context()
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(f"{url}/")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#live")).to_have_text("live")
    yield page
    await context.close()
    assert complaints == []


async def test_a_job_moves_through_its_states_live(browser: Browser, url: str, api: Client) -> None:
    """Within two seconds and without a reload: on its own page, in the list, on the overview."""
    id = (await api.post("/v1/jobs", {"type": "mail", "payload": {"to": "a"}})).json["id"]
    async with signed_in(browser, url, "reader") as page:
        await page.goto(url + link("jobs", "acme", id))
        await page.evaluate("window.same = true")
        chip = page.locator("h1 .chip")
        await expect(chip).to_have_text("enqueued")
        await expect(page.locator("#live")).to_have_text("live")

        [lease] = (await api.post("/v1/claim", {"worker": "w-1"})).json["leases"]
        await expect(chip).to_have_text("processing", timeout=LIVE_MS)
        await expect(page.locator("#facts")).to_contain_text("w-1")
        done = {"id": id, "token": lease["token"], "outcome": "complete", "result": {"n": 7}}
        await api.post("/v1/ack", {"acks": [done]})
        await expect(chip).to_have_text("completed", timeout=LIVE_MS)
        await expect(page.locator("#result")).to_contain_text('"n": 7')
        assert await page.evaluate("window.same")

        await page.goto(f"{url}/ui/jobs")
        await expect(page.locator("#live")).to_have_text("live")
        await api.post("/v1/jobs", {"type": "brand-new"})
        await expect(page.locator("#jobs")).to_contain_text("brand-new", timeout=LIVE_MS)
        await page.goto(f"{url}/")
        await expect(page.locator("#live")).to_have_text("live")
        await api.post("/v1/jobs", {"type": "mail", "queue": "sudden"})
        await expect(page.locator("#overview")).to_contain_text("sudden", timeout=LIVE_MS)


async def test_dead_letters_are_replayed(
    browser: Browser, url: str, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by its button, then all the others in steps that go by themselves."""
    monkeypatch.setattr(acts, "STEP", 3)
    await api.post("/v1/jobs/batch", {"jobs": [{"type": "mail", "queue": "mail"}] * 12})
    leases = (await api.post("/v1/claim", {"limit": 12})).json["leases"]
    failed = [
        {"id": one["job"]["id"], "token": one["token"], "outcome": "fail", "retry": False}
        for one in leases
    ]
    await api.post("/v1/ack", {"acks": failed})
    async with signed_in(browser, url, "operator") as page:
        await page.get_by_role("link", name="Dead letters").click()
        await page.get_by_role("button", name=re.compile("^Replay")).first.click()
        await expect(page.locator(".did")).to_contain_text("replayed")
        await expect(page.locator("h1 .chip")).to_have_text("enqueued")

        await page.goto(f"{url}/ui/dead?queue=mail")
        await page.get_by_role("link", name="Replay all that match").click()
        await page.get_by_role("button", name="Replay 11").click()
        await expect(page.locator("#bulk")).to_contain_text("Replayed 11 jobs")

    assert len((await api.get("/v1/jobs?state=enqueued")).json["jobs"]) == 12


async def test_a_reader_is_refused(
    browser: Browser, url: str, api: Client, jobs: dict[str, str]
) -> None:
    """It finds no button, and what it sends all the same is answered with 403."""
    async with signed_in(browser, url, "reader") as page:
        await page.goto(url + link("jobs", "acme", jobs["failed"]))
        assert await page.locator("main button").count() == 0

        answer = await page.context.request.post(
            f"{url}{link('jobs', 'acme', jobs['failed'])}/replay",
            form={"form_token": await page.locator("[name=form_token]").first.input_value()},
        )

        assert answer.status == 403
        assert "no right to operate" in await answer.text()


async def test_markup_of_a_job_is_shown_inert(browser: Browser, url: str, api: Client) -> None:
    """In payload, result, error, names and progress: no script runs, no element is made of it."""
    bad = "<img src=x onerror=window.hit=1><script>window.hit=1</script></pre></title><b id=hit>"
    made = await api.post(
        "/v1/jobs",
        {"type": bad, "queue": bad, "group": bad, "tags": ["<b id=hit>"], "id": "<b id=hit>/x",
         "payload": {bad: bad}, "key": bad},
    )  # fmt: skip
    assert made.status == 201, made
    [lease] = (await api.post("/v1/claim", {"worker": bad})).json["leases"]
    entries = [{"kind": kind, "name": bad, "value": bad * 2} for kind in ("step", "position")]
    renewal = {
        "id": lease["job"]["id"], "token": lease["token"], "progress": bad,
        "entries": entries, "log": [bad],
    }  # fmt: skip
    sent = await api.post("/v1/jobs/%3Cb%20id=hit%3E%2Fx/signal", {"name": bad, "value": bad})
    assert sent.status == 200, sent
    await api.post("/v1/extend", {"leases": [renewal]})
    ack = {
        "id": lease["job"]["id"], "token": lease["token"], "outcome": "fail", "error": bad,
        "error_kind": bad, "traceback": bad,
    }  # fmt: skip
    await api.post("/v1/ack", {"acks": [{**ack, "retry": False}]})
    name = quote(bad, safe="")
    assert (await api.post(f"/v1/scopes/queue/{name}/pause", {"reason": bad})).status == 200
    paths = ["/", "/ui/queues", "/ui/jobs", "/ui/dead", "/ui/dead?act=replay", "/ui/workers"]
    paths += [link("jobs", "acme", "<b id=hit>/x"), link("queues", "acme", bad)]
    async with signed_in(browser, url, "operator") as page:
        for path in paths:
            await page.goto(url + path)
            await expect(page.locator("#live")).to_have_text("live")
            assert await page.locator("#hit, main img, main script").count() == 0, path
            assert await page.evaluate("window.hit") is None, path
        await page.goto(url + link("jobs", "acme", "<b id=hit>/x"))
        await expect(page.locator("#payload")).to_contain_text("<script>window.hit=1</script>")


async def test_what_a_job_remembers_is_live(browser: Browser, url: str, api: Client) -> None:
    """New steps and lines appear, what was unfolded stays so, and a signal is sent by the form."""
    await api.post("/v1/jobs", {"type": "fulfil", "id": "a"})
    [lease] = (await api.post("/v1/claim", {"worker": "w-1"})).json["leases"]
    held = {"id": "a", "token": lease["token"]}

    async def remember(name: str, value: object, line: str) -> None:
        entry = {"kind": "step", "name": name, "value": value}
        await api.post("/v1/extend", {"leases": [{**held, "entries": [entry], "log": [line]}]})

    await remember("charge", {"receipt": "r" * 100}, "charged")
    async with signed_in(browser, url, "machine") as page:
        await page.goto(url + link("jobs", "acme", "a"))
        await expect(page.locator("#live")).to_have_text("live")
        value = page.locator("#journal pre")
        await expect(value).to_be_hidden()
        await page.locator("#journal summary").click()
        await expect(value).to_contain_text("rrr")

        await remember("send", 5, "sent")
        await expect(page.locator("#journal")).to_contain_text("send", timeout=LIVE_MS)
        await expect(page.locator("#log")).to_contain_text("sent")
        await expect(value).to_be_visible()
        await api.post("/v1/ack", {"acks": [{**held, "outcome": "park", "awaits": "signal:ok"}]})
        await expect(page.locator("#awaits")).to_contain_text("ok", timeout=LIVE_MS)

        await page.reload()
        await page.locator("#signal").get_by_role("button").click()
        await expect(page.locator(".did")).to_contain_text("The signal is stored")
        await expect(page.locator("h1 .chip")).to_have_text("enqueued")


@pytest.mark.parametrize("width", [380, 900, 1160, 1400])
async def test_no_page_is_wider_than_its_window(
    browser: Browser, url: str, jobs: dict[str, str], service: Service, width: int
) -> None:
    """On a telephone and on a desk, however long the names of tiers and the reasons of pauses."""
    platform, long = operate.platform(service.store), "x" * 128
    await platform.tier(long).set(max_running=1_000_000, max_bytes=10**12, rate="1000000/s")
    await operate.scope(service.store, "acme").set(tier=long)
    await platform.set(max_running=1_000_000, rate="1000000/s", burst=900_000)
    await platform.queue(long).pause(long * 2, long * 2)
    await remembering(service, long)
    paths = ["/", "/ui/queues", "/ui/jobs", "/ui/dead", "/ui/workers", link("jobs", "acme", "long")]
    paths += [link("jobs", "acme", jobs["failed"]), link("queues", "acme", "mail")]
    paths += ["/ui/platform", f"/ui/platform?kind=queue&name={long}"]
    async with signed_in(browser, url, "machine") as page:
        await page.set_viewport_size({"width": width, "height": 900})
        for path in paths:
            await page.goto(url + path)
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert await page.evaluate(wider) <= 0, path


async def test_a_queue_of_all_tenants_is_limited_paused_and_resumed(
    browser: Browser, url: str, service: Service
) -> None:
    """By the forms of the platform's page; what is typed stays while the page is live."""
    async with signed_in(browser, url, "machine") as page:
        await page.get_by_role("link", name="Platform").click()
        await page.get_by_label("Name").fill("mail")
        await page.get_by_role("button", name="Choose…").click()
        change = page.locator("#change")
        await change.get_by_label("Running at most").fill("7")
        await operate.platform(service.store).queue("other").set(rate="3/s")
        await expect(page.locator("#platform")).to_contain_text("3/s", timeout=LIVE_MS)
        await change.get_by_role("button", name="Set limits").click()
        await expect(page.locator(".did")).to_contain_text("limits of all tenants are set")
        row = page.locator("#platform tr", has_text="mail")
        await expect(row.locator("meter")).to_have_attribute("max", "7")

        await row.get_by_role("link", name="Change queue mail").click()
        await change.get_by_label("Reason", exact=True).last.fill("the provider is down")
        await change.get_by_role("button", name="Pause").click()
        await expect(row).to_contain_text("the provider is down, by m")
        await row.get_by_role("button", name="Resume queue mail").click()
        await expect(row).not_to_contain_text("the provider is down")


async def test_the_keyboard_reaches_everything(
    browser: Browser, url: str, jobs: dict[str, str]
) -> None:
    """First the way past the top, then the pages; what has the focus keeps it while live."""
    async with signed_in(browser, url, "operator") as page:
        await page.goto(f"{url}/ui/jobs")
        await expect(page.locator("#live")).to_have_text("live")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        here = page.get_by_role("link", name=jobs["failed"])
        await here.focus()

        async with page.expect_response(re.compile("/ui/jobs$")):
            await page.evaluate("document.querySelector('#jobs th').textContent = 'stale'")
        await expect(page.locator("#jobs th").first).to_have_text("State")

        assert await page.evaluate("document.activeElement.textContent") == jobs["failed"]


async def bury(api: Client, type: str) -> str:
    """A dead letter of this type; its id."""
    id = str((await api.post("/v1/jobs", {"type": type, "queue": type})).json["id"])
    [lease] = (await api.post("/v1/claim", {"queues": [type]})).json["leases"]
    ack = {"id": id, "token": lease["token"], "outcome": "fail", "retry": False}
    await api.post("/v1/ack", {"acks": [ack]})
    return id


async def test_rows_do_not_move_under_the_mouse(browser: Browser, url: str, api: Client) -> None:
    """A click on Replay hits the job that was aimed at; what is new shows when the mouse leaves."""
    aimed = await bury(api, "aimed")
    async with signed_in(browser, url, "operator") as page:
        await page.goto(f"{url}/ui/dead")
        await expect(page.locator("#live")).to_have_text("live")
        button = page.get_by_role("button", name=re.compile("^Replay")).first
        await button.hover()
        before = await button.bounding_box()

        async with page.expect_response(re.compile("/ui/dead$")):
            await bury(api, "sudden")
        await expect(page.locator("#live")).to_contain_text("held")
        assert await button.bounding_box() == before
        assert "sudden" not in await page.locator("#dead").inner_text()
        await page.mouse.move(1, 1)
        await expect(page.locator("#dead")).to_contain_text("sudden", timeout=LIVE_MS)

        row = page.locator("#dead tr", has_text=aimed)
        await row.get_by_role("button", name=re.compile("^Replay")).hover()
        async with page.expect_response(re.compile("/ui/dead$")):
            await bury(api, "another")
        await page.mouse.down()
        await page.mouse.up()
        await expect(page.locator(".did")).to_contain_text("replayed")
        await expect(page.locator("#facts")).to_contain_text(aimed)


async def test_the_rest_of_the_overview_stays_live_under_the_mouse(
    browser: Browser, url: str, api: Client
) -> None:
    """Only the table that is pointed at waits."""
    await api.post("/v1/jobs", {"type": "mail", "queue": "first"})
    async with signed_in(browser, url, "reader") as page:
        await page.goto(f"{url}/")
        await expect(page.locator("#live")).to_have_text("live")
        await page.get_by_role("link", name="first").hover()

        await api.post("/v1/jobs/batch", {"jobs": [{"type": "mail", "queue": "second"}] * 5})

        shares = page.locator(".shares")
        await expect(shares).to_contain_text(re.compile(r"enqueued\s*6"), timeout=LIVE_MS)
        assert await page.get_by_role("link", name="second").count() == 0
        await page.mouse.move(1, 1)
        await expect(page.locator("#overview")).to_contain_text("second", timeout=LIVE_MS)
