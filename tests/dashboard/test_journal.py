"""What a job remembers, on its page: shown, bounded and inert; and the form that sends a signal."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dashboard.conftest import Lacking
from tests.dashboard.visitor import Visit
from tests.service.asgi import Client

from holdfast.attempts import AttemptError, error_entry
from holdfast.core.bounds import LOGS_MAX
from holdfast.core.journal import Entry, EntryKind, Signal
from holdfast.dashboard.journal_views import LINES_SHOWN, STEPS_SHOWN, VALUE_MAX
from holdfast.dashboard.words import link
from holdfast.service.service import Service
from holdfast.store import Extension

EVIL = "<img src=x onerror=alert(1)>"
SAFE = "&lt;img src=x onerror=alert(1)&gt;"
MINUTE = 60_000_000
NINE = b'["l","l","l","l","l","l","l","l","m"]'


async def held(api: Client, **job: Any) -> dict[str, Any]:
    await api.post("/v1/jobs", {"type": "send", "queue": "mail", "id": "a", **job})
    claim = {"queues": ["mail"], "worker": "w1"}
    [lease] = (await api.post("/v1/claim", claim)).json["leases"]
    found: dict[str, Any] = lease
    return found


async def write(service: Service, lease: dict[str, Any], *entries: Entry) -> None:
    one = Extension(
        tenant="acme", id=lease["job"]["id"], token=lease["token"], lease_us=MINUTE, entries=entries
    )
    [answer] = await service.store.extend([one])
    assert answer.error is None, answer


async def park(api: Client, lease: dict[str, Any], awaits: str) -> None:
    one = {"id": "a", "token": lease["token"], "outcome": "park", "awaits": awaits}
    assert "error" not in (await api.post("/v1/ack", {"acks": [one]})).json["acks"][0]


PAGE = link("jobs", "acme", "a")


async def test_the_page_has_what_a_job_remembers(
    visit: Visit, api: Client, service: Service
) -> None:
    """What it awaits, its steps, signals and joins, the errors of its attempts, its log."""
    lease = await held(api, edges=[{"target": "other"}])
    error = AttemptError(
        attempt=1, kind="shop.Refused", message="card refused", traceback="Traceback\nmore",
        worker="w1", started_at=1_000_000, ended_at=3_500_000,
    )  # fmt: skip
    await write(
        service, lease,
        Entry(EntryKind.STEP, "charge", b"5"), Entry(EntryKind.POSITION, "pages", b'{"at":7}'),
        Entry(EntryKind.JOIN, "lines", b"3"), Entry(EntryKind.LOG, "", b'["a line"]'),
        error_entry(error),
    )  # fmt: skip
    await service.store.signal([Signal("acme", "a", "early", b"true")])
    await park(api, lease, "signal:approved")

    text = await visit("operator").page(PAGE)

    for part in (
        "it waits for the signal &#39;approved&#39;", "charge", "<code>5</code>", "pages", "early",
        "0 of 3 jobs ended", "Attempt 1", "2.50 s, worker w1", "shop.Refused", "card refused",
        "a line", "1 job",
    ):  # fmt: skip
        assert part in text, part


async def test_nothing_that_a_job_remembers_is_markup(
    visit: Visit, api: Client, service: Service
) -> None:
    """Names, values, errors and lines are of the tenant's making."""
    lease = await held(api)
    error = AttemptError(
        attempt=1, kind=EVIL, message=EVIL, traceback=EVIL, worker=EVIL, started_at=1, ended_at=0
    )
    evil = f'"{EVIL}"'.encode()
    await write(
        service, lease,
        *(Entry(kind, EVIL, evil) for kind in (EntryKind.STEP, EntryKind.POSITION)),
        Entry(EntryKind.STEP, f'{EVIL}"', evil + b" " * 100), Entry(EntryKind.JOIN, EVIL, b"3"),
        Entry(EntryKind.STEP, "bytes", EVIL.encode() + b"\xff"),
        Entry(EntryKind.STEP, "deep", b"[" * 30_000),
        Entry(EntryKind.LOG, "", f'["{EVIL}"]'.encode()), error_entry(error),
    )  # fmt: skip
    await service.store.signal([Signal("acme", "a", EVIL, evil)])
    await park(api, lease, f"signal:{EVIL}x")

    for token in ("operator", "machine"):
        text = await visit(token).page(PAGE)
        assert EVIL not in text
        assert text.count(SAFE) >= 10
        assert f'data-key="step {SAFE}&#34;"' in text or SAFE in text


async def test_a_long_journal_is_cut(visit: Visit, api: Client, service: Service) -> None:
    """P19: the latest entries, of each value the beginning; the page says what is missing."""
    lease = await held(api)
    for start in range(0, STEPS_SHOWN + 100, 100):
        await write(
            service, lease,
            *(Entry(EntryKind.STEP, f"s{start + n:03}", b"1") for n in range(100)),
        )  # fmt: skip
    await write(service, lease, Entry(EntryKind.STEP, "z", b'"' + b"y" * 60_000 + b'"'))
    for _ in range(LOGS_MAX):
        await write(service, lease, Entry(EntryKind.LOG, "", NINE))

    text = await visit("operator").page(PAGE)

    assert "101 earlier entries are not shown" in text
    assert f"{LOGS_MAX * 9 - LINES_SHOWN} earlier lines are not shown" in text
    assert "y" * (VALUE_MAX - 100) in text
    assert "y" * (VALUE_MAX + 1) not in text


async def test_a_store_without_steps_has_the_page_too(
    visit: Visit, api: Client, lacking: Lacking
) -> None:
    """Without the form."""
    await held(api)
    lacking("steps")

    text = await visit("machine").page(PAGE)
    assert "Send a signal" not in text


# -- the signal form -------------------------------------------------------------------------------


async def test_a_signal_is_sent_by_a_form(visit: Visit, api: Client) -> None:
    """Its name is filled in; an earlier one counts; the event names the viewer."""
    await park(api, await held(api), "signal:approved")
    machine = visit("machine")
    assert 'name="name" value="approved"' in await machine.page(PAGE)

    sent = await machine.send(f"{PAGE}/signal", name="approved", value='{"by": 1}', reason="why")
    again = await machine.send(f"{PAGE}/signal", name="approved", value="2")

    assert sent.headers["location"].endswith("?did=signaled")
    assert again.headers["location"].endswith("?did=known")
    journal = (await api.get("/v1/jobs/a/journal")).json
    assert [one["value"] for one in journal["signals"]] == [{"by": 1}]
    events = (await api.get("/v1/jobs/a/events")).json["events"]
    assert [one["by"] for one in events if one["kind"] == "signaled"] == ["m: why"]


@pytest.mark.parametrize(
    ("token", "status"),
    [
        ("reader", 403),
        ("operator", 403),
        ("acme", 403),
        ("mailer", 403),
        ("worker", 403),
        ("producer", 303),
        ("machine", 303),
        ("postman", 303),
        ("sender", 303),
    ],
)
async def test_who_may_enqueue_may_signal(
    visit: Visit, api: Client, token: str, status: int
) -> None:
    """A signal is input of a handler, so the right to operate is not enough."""
    await held(api)
    visitor = visit(token)

    assert (await visitor.send(f"{PAGE}/signal", name="ok", value="")).status == status
    if token != "worker":
        assert ("Send a signal" in await visitor.page(PAGE)) == (status == 303)


async def test_jobs_of_others_are_not_signaled(visit: Visit, api: Client) -> None:
    """P7: of another queue, type or tenant."""
    for job in (
        {"type": "send", "queue": "bank", "id": "beside"},
        {"type": "pay", "queue": "mail", "id": "other-type"},
    ):
        await api.post("/v1/jobs", job)
    await api.post("/v1/jobs", {"type": "send", "id": "theirs"}, holdfast_tenant="globex")

    async def status(token: str, tenant: str, id: str) -> int:
        path = f"{link('jobs', tenant, id)}/signal"
        return (await visit(token).send(path, name="ok", value="1")).status

    assert await status("postman", "acme", "beside") == 404
    assert await status("sender", "acme", "other-type") == 403
    assert await status("producer", "globex", "theirs") == 404
    for id in ("beside", "other-type"):
        assert (await api.get(f"/v1/jobs/{id}/journal")).json["signals"] == []


@pytest.mark.parametrize(
    "fields", [{"name": ""}, {"name": "x" * 129}, {"name": "ok", "value": "{"}, {}], ids=str
)
async def test_a_bad_signal_is_refused(visit: Visit, api: Client, fields: dict[str, str]) -> None:
    """422, with a page that says why."""
    await held(api)

    assert (await visit("machine").send(f"{PAGE}/signal", **fields)).status == 422


# -- replay ----------------------------------------------------------------------------------------


async def test_a_job_is_replayed_from_a_step_by_its_form(
    visit: Visit, api: Client, service: Service
) -> None:
    """The steps to choose from are those that it has finished."""
    lease = await held(api)
    for name in ("one", "two"):
        await write(service, lease, Entry(EntryKind.STEP, name, b"1"))
    done = {"id": "a", "token": lease["token"], "outcome": "fail", "retry": False}
    await api.post("/v1/ack", {"acks": [done]})
    machine = visit("machine")
    assert '<option value="two">from step two</option>' in await machine.page(PAGE)

    assert (await machine.send(f"{PAGE}/replay", from_step="three")).status == 422
    moved = await machine.send(f"{PAGE}/replay", from_step="two")

    new = moved.headers["location"].split("?")[0].rpartition("/")[2]
    journal = (await api.get(f"/v1/jobs/{new}/journal")).json
    assert [one["name"] for one in journal["steps"]] == ["one"]
