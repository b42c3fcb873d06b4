"""Each page shows what it is for, to whom it is for, and nothing else."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files

import pytest
from tests.dashboard.visitor import Visit, Visitor, elements, seeded, tidy
from tests.service.asgi import Client

from holdfast.cli.main import COMMANDS
from holdfast.core.clock import SECOND
from holdfast.core.job import Failed, State
from holdfast.core.lifecycle import decide
from holdfast.dashboard.words import link
from holdfast.service.app import application
from holdfast.service.pages import dashboard
from holdfast.service.service import Service
from holdfast.store import Claim

PATHS = ["/", "/ui/queues", "/ui/jobs", "/ui/dead", "/ui/workers", "/ui/login"]


async def test_the_overview_shows_charts_states_and_failures(
    visit: Visit, jobs: dict[str, str]
) -> None:
    """Drawn on the server: the numbers are there without any script."""
    text = await visit("reader").page("/")

    charts = [attrs for tag, attrs in elements(text) if tag == "svg" and "aria-label" in attrs]
    assert [str(one["aria-label"]).split()[0] for one in charts] == [
        "Throughput", "Depth", "Oldest", "Failures",
    ]  # fmt: skip
    seen = tidy(text)
    assert "enqueued 2" in seen
    assert "failed 1" in seen
    assert link("jobs", "acme", jobs["failed"]) in text


async def test_an_empty_store_says_what_to_do(visit: Visit) -> None:
    """No page is blank."""
    reader = visit("reader")

    assert "There are no jobs yet" in await reader.page("/")
    assert "There are no queues yet" in await reader.page("/ui/queues")
    assert "There are no jobs yet" in await reader.page("/ui/jobs")
    assert "There are no dead letters" in await reader.page("/ui/dead")
    assert "No worker is present" in await reader.page("/ui/workers")


async def test_queues_are_those_of_all_tenants_or_of_ones_own(
    visit: Visit, jobs: dict[str, str]
) -> None:
    """And of the queues that the token is for."""
    everything = await visit("reader").page("/ui/queues")
    own = await visit("acme").page("/ui/queues")
    mail = await visit("mailer").page("/ui/queues")

    assert link("queues", "globex", "mail") in everything
    assert link("queues", "globex", "mail") not in own
    assert link("queues", "acme", "crawl") in own
    assert link("queues", "acme", "crawl") not in mail


@pytest.mark.parametrize(
    ("query", "states"),
    [
        ("", {"failed", "completed", "processing", "enqueued", "globex"}),
        ("state=failed", {"failed"}),
        ("queue=crawl", {"enqueued"}),
        ("type=crawl", {"enqueued"}),
        ("group=g%2F1", {"enqueued"}),
        ("tag=night", {"enqueued"}),
        ("reason=PERMANENT", {"failed"}),
        ("tenant=globex", {"globex"}),
        ("tenant=acme&queue=nope", set()),
    ],
)
async def test_jobs_are_filtered(
    visit: Visit, jobs: dict[str, str], query: str, states: set[str]
) -> None:
    """By each field of the form."""
    text = await visit("reader").page(f"/ui/jobs?{query}")

    assert {state for state, id in jobs.items() if id in text} == states


async def test_jobs_come_by_pages(visit: Visit, api: Client) -> None:
    """Each job is on one page, and the last page leads no further."""
    made = await api.post("/v1/jobs/batch", {"jobs": [{"type": "mail"}] * 120})
    ids = {one["id"] for one in made.json["jobs"]}
    reader, path, seen = visit("reader"), "/ui/jobs?type=mail", []

    for _ in range(4):
        text = await reader.page(path)
        seen += [id for id in ids if id in text]
        hrefs = [str(attrs.get("href")) for _, attrs in elements(text)]
        older = [href for href in hrefs if "after=" in href]
        if not older:
            break
        path = older[0]

    assert sorted(seen) == sorted(ids)


async def test_a_job_shows_its_timeline_error_payload_and_result(
    visit: Visit, jobs: dict[str, str]
) -> None:
    """All that is known of it."""
    reader = visit("reader")
    failed = tidy(await reader.page(link("jobs", "acme", jobs["failed"])))
    completed = tidy(await reader.page(link("jobs", "acme", jobs["completed"])))

    assert "PERMANENT" in failed
    assert "ValueError" in failed
    assert failed.index("enqueued") < failed.index("leased") < failed.rindex("failed")
    assert "&#34;to&#34;: &#34;a&#34;" in completed
    assert "&#34;sent&#34;: &#34;&lt;i&gt;&#34;" in completed


async def test_a_timeline_has_instants_and_lengths(visit: Visit, jobs: dict[str, str]) -> None:
    """When each thing happened, readable without a mouse, and how long after the one before."""
    text = tidy(await visit("reader").page(link("jobs", "acme", jobs["failed"])))

    lines = text[text.index("Timeline") : text.index("Facts")]
    assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", lines)) == 3
    assert len(re.findall(r"\d+ ms later|\d\.\d\d s later", lines)) == 2


async def test_every_state_is_in_the_jobs_by_state(visit: Visit, api: Client) -> None:
    """Canceled jobs, too."""
    id = (await api.post("/v1/jobs", {"type": "mail"})).json["id"]
    await api.post(f"/v1/jobs/{id}/cancel")

    text = await visit("reader").page("/")

    seen = tidy(text)
    shares = seen[seen.index("Jobs by state") :]
    assert "canceled 1" in shares
    assert {state.value for state in State} == set(re.findall(r"/ui/jobs\?state=(\w+)", text))


async def test_pages_say_one_job_of_one(visit: Visit, api: Client) -> None:
    """Not one jobs."""
    await seeded(api)
    id = (await api.post("/v1/jobs", {"type": "mail", "queue": "mail"})).json["id"]
    await api.post("/v1/scopes/queue/mail", {"max_running": 1})
    reader = visit("reader")
    for path in (*PATHS[:-1], link("jobs", "acme", id), link("queues", "acme", "mail")):
        text = tidy(await reader.page(path))
        wrong = re.findall(r"(?<![\d.,/])\b1 (?:dead )?(?:jobs|workers|queues|letters)\b", text)
        assert wrong == [], path


async def test_a_job_that_waits_says_why(visit: Visit, api: Client, jobs: dict[str, str]) -> None:
    """The gates of `explain`, in words."""
    await api.post("/v1/scopes/queue/crawl/pause", {"reason": "too hot"})

    text = tidy(await visit("reader").page(link("jobs", "acme", jobs["enqueued"])))

    assert "queue crawl is paused by m: too hot" in text


async def test_progress_is_shown(visit: Visit, api: Client) -> None:
    """As the handler told it."""
    made = await api.post("/v1/jobs", {"type": "mail"})
    [lease] = (await api.post("/v1/claim")).json["leases"]
    told = '{"done": 3, "total": 12, "note": "page 3"}'
    renewal = {"id": made.json["id"], "token": lease["token"], "progress": told}
    await api.post("/v1/extend", {"leases": [renewal]})

    text = await visit("reader").page(link("jobs", "acme", made.json["id"]))

    assert ("progress", {"value": "3.0", "max": "12.0"}) in elements(text)
    assert "page 3" in text


@pytest.mark.parametrize("id", ["a/b c", "..", ".", "~", "ü?#%", "<b>", "x" * 128])
async def test_any_name_is_one_segment_of_an_address(visit: Visit, api: Client, id: str) -> None:
    """Slashes, dots and markup lead to the job they name."""
    await api.post("/v1/jobs", {"type": "mail", "id": id, "queue": id})
    reader = visit("reader")

    text = await reader.page("/ui/jobs")
    hrefs = [str(attrs.get("href")) for _, attrs in elements(text)]
    hrefs = [href for href in hrefs if href.startswith("/ui/jobs/")]
    assert hrefs == [link("jobs", "acme", id)]
    assert hrefs[0].count("/") == 4
    assert "Timeline" in await reader.page(hrefs[0])
    assert "Oldest wait" in await reader.page(link("queues", "acme", id))


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_is_locked_down(visit: Visit, path: str) -> None:
    """Nothing from elsewhere, no inline script, no inline style."""
    found = await visit("reader").get(path)

    csp = found.headers["content-security-policy"]
    assert "default-src 'none'" in csp
    assert "unsafe" not in csp
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "same-origin"
    assert found.headers["cache-control"] == "no-store"
    for tag, attrs in elements(found.body.decode()):
        assert "style" not in attrs, tag
        assert not [name for name in attrs if name.startswith("on")], tag
        if tag == "script":
            assert str(attrs["src"]).startswith("/ui/static/")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/jobs?state=bogus", 422),
        ("/ui/jobs?reason=bogus", 422),
        ("/ui/jobs?after=x", 422),
        ("/ui/jobs?after=99999999999999999999", 422),
        ("/ui/jobs?queue=%00", 422),
        ("/ui/jobs/acme/nope", 404),
        ("/ui/queues/acme/nope", 422),
        ("/ui/live?topic=x", 422),
        ("/ui/static/nope.js", 404),
    ],
)
async def test_bad_addresses_are_told_as_pages(visit: Visit, path: str, status: int) -> None:
    """A clear 4xx, never a fault."""
    found = await visit("operator").get(path)

    assert found.status == status
    assert "application/json" not in found.headers["content-type"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "["},
        {"cookie": "holdfast_token=%%%; holdfast_form=\x01"},
        {"cookie": "holdfast_token=" + "A" * 5},
        {"cookie": ";;;=;"},
        {"accept": "text/event-stream"},
    ],
)
async def test_odd_headers_are_no_fault(api: Client, headers: dict[str, str]) -> None:
    """Who sends them is unknown, as anybody without a token."""
    found = await Client(api.app).get("/ui/jobs", **headers)

    assert found.status in (303, 401)


async def test_half_characters_are_shown_all_the_same(
    visit: Visit, service: Service, api: Client
) -> None:
    """An error text may hold anything."""
    id = (await api.post("/v1/jobs", {"type": "mail"})).json["id"]
    lease = Claim(worker="w", nonce="n", limit=1, lease_us=SECOND)
    [held] = await service.store.claim(lease)
    outcome = Failed(error="half \ud800 <b>", retryable=False)
    await service.store.ack([decide(outcome, held.job, held.token, 0.5)])

    assert "half ? &lt;b&gt;" in await visit("reader").page(link("jobs", "acme", id))
    assert "half ? &lt;b&gt;" in await visit("reader").page("/")


async def test_files_are_kept_by_browsers_until_they_change(visit: Visit) -> None:
    """Their address names their version."""
    visitor = visit(None)
    text = await visit("reader").page("/ui/jobs")
    [source] = [str(attrs["src"]) for tag, attrs in elements(text) if tag == "script"]

    found = await visitor.get(source)

    assert found.headers["content-type"].startswith("text/javascript")
    assert "immutable" in found.headers["cache-control"]
    assert (await visitor.get("/ui/static/style.css")).headers["cache-control"] == "no-cache"


async def test_without_authentication_nobody_signs_in(open_service: Service) -> None:
    """The pages are there at once, and the login leads back to them."""
    visitor = Visitor(Client(application(open_service, mounts=[dashboard], owns_store=False)), None)

    assert "Sign out" not in await visitor.page("/")
    assert (await visitor.get("/ui/login")).headers["location"] == "/"


def test_commands_that_pages_name_are_commands() -> None:
    """Whoever copies one from a page meets no usage error."""
    named = [
        shlex.split(command)
        for page in (files("holdfast.dashboard") / "templates").iterdir()
        for command in re.findall(r"<code>holdfast ([^<{]*)</code>", page.read_text("utf-8"))
    ]

    assert named
    commands = {command.name: command for command in COMMANDS}
    for name, *arguments in named:
        command = commands[name]
        if arguments:  # Else it is only named.
            command.make_context(name, arguments).close()
