"""What an operator does by the forms comes to pass."""

from __future__ import annotations

import pytest
from tests.dashboard.visitor import Visit, Visitor, elements, tidy
from tests.service.asgi import Client

from holdfast.dashboard import acts
from holdfast.dashboard.words import link

Jobs = dict[str, str]


async def _state(api: Client, id: str) -> str:
    return str((await api.get(f"/v1/jobs/{id}")).json["state"])


async def test_a_queue_is_paused_with_a_reason_and_resumed(
    visit: Visit, api: Client, jobs: Jobs
) -> None:
    """Everybody sees who did it and why."""
    operator, path = visit("operator"), link("queues", "acme", "mail")

    assert (await operator.send(f"{path}/pause", reason="")).status == 422
    paused = await operator.send(f"{path}/pause", reason="smtp <down>")

    assert paused.headers["location"] == f"{path}?did=paused"
    assert "Paused by olga: smtp &lt;down&gt;" in await visit("reader").page(path)
    assert "Resume" in await operator.page("/ui/queues")
    assert (await operator.send(f"{path}/resume")).status == 303
    assert "Paused by" not in await operator.page(path)


async def test_a_job_is_canceled_once(visit: Visit, api: Client, jobs: Jobs) -> None:
    """One that has ended says so."""
    operator = visit("operator")

    first = await operator.send(f"{link('jobs', 'acme', jobs['processing'])}/cancel")
    late = await operator.send(f"{link('jobs', 'acme', jobs['completed'])}/cancel")

    assert first.headers["location"].endswith("?did=canceled")
    assert await _state(api, jobs["processing"]) == "canceled"
    assert late.headers["location"].endswith("?did=ended")
    assert "already ended" in await operator.page(late.headers["location"])


async def test_a_replay_leads_to_the_new_job(visit: Visit, api: Client, jobs: Jobs) -> None:
    """The same one when it is asked for again."""
    operator, path = visit("operator"), link("jobs", "acme", jobs["failed"])

    first = await operator.send(f"{path}/replay")
    again = await operator.send(f"{path}/replay")

    assert first.status == 303
    assert again.headers["location"] == first.headers["location"]
    assert jobs["failed"] in await operator.page(first.headers["location"])
    assert "Replayed as" in await operator.page(path)


async def test_a_waiting_job_is_changed(visit: Visit, api: Client, jobs: Jobs) -> None:
    """Its priority and its time, by who operates; one that runs or has ended offers neither."""
    operator, path = visit("operator"), link("jobs", "acme", jobs["enqueued"])

    raised = await operator.send(f"{path}/reprioritise", priority="-7", reason="hurry <b>")
    later = await operator.send(f"{path}/reschedule", minutes="90")

    assert (raised.status, later.status) == (303, 303)
    found = (await api.get(f"/v1/jobs/{jobs['enqueued']}")).json
    assert (found["priority"], found["state"]) == (-7, "scheduled")
    text = await operator.page(path)
    assert "by olga: hurry &lt;b&gt;" in text
    assert "Set priority" in text
    for state in ("processing", "failed"):
        assert "Set priority" not in await operator.page(link("jobs", "acme", jobs[state]))
    assert "Set priority" not in await visit("reader").page(path)
    assert (await visit("reader").send(f"{path}/reprioritise", priority="1")).status == 403


@pytest.mark.parametrize(
    ("act", "fields"),
    [
        ("reprioritise", {"priority": "9" * 10}),
        ("reprioritise", {"priority": "1e3"}),
        ("reschedule", {"minutes": "-1"}),
        ("reschedule", {"minutes": ""}),
        ("reschedule", {"minutes": "9" * 10}),
        ("cancel", {"reason": "x" * 300}),
    ],
)
async def test_a_change_that_makes_no_sense_is_refused(
    visit: Visit, api: Client, jobs: Jobs, act: str, fields: dict[str, str]
) -> None:
    """And changes nothing."""
    path = link("jobs", "acme", jobs["enqueued"])

    assert (await visit("operator").send(f"{path}/{act}", **fields)).status == 422
    assert await _state(api, jobs["enqueued"]) == "enqueued"


async def test_acts_are_signed_by_who_is_signed_in(visit: Visit, api: Client, jobs: Jobs) -> None:
    """With the reason that was given."""
    operator = visit("operator")
    await operator.send(f"{link('jobs', 'acme', jobs['enqueued'])}/cancel", reason="not needed")
    await operator.send(f"{link('jobs', 'acme', jobs['failed'])}/replay")
    await operator.send(f"{link('queues', 'acme', 'mail')}/pause", reason="hot")
    await operator.send(f"{link('queues', 'acme', 'mail')}/resume", reason="cool")

    events = (await api.get("/v1/events")).json["events"]
    by = {event["kind"]: event.get("by") for event in events}
    assert (by["canceled"], by["replayed"], by["configured"]) == (
        "olga: not needed",
        "olga",
        "olga: cool",
    )


async def test_dead_letters_are_filtered_by_the_time_of_their_failure(
    visit: Visit, jobs: Jobs
) -> None:
    """In UTC, to the minute; a wrong instant is named."""
    reader = visit("reader")

    assert jobs["failed"] in await reader.page("/ui/dead?failed_from=2020-01-01T00:00")
    assert jobs["failed"] not in await reader.page("/ui/dead?failed_before=2020-01-01T00:00")
    assert (await reader.get("/ui/dead?failed_from=yesterday")).status == 422


async def test_a_running_job_is_not_replayed(visit: Visit, jobs: Jobs) -> None:
    """It has not ended yet."""
    found = await visit("operator").send(f"{link('jobs', 'acme', jobs['processing'])}/replay")

    assert found.status == 409
    assert "cannot be changed while processing" in tidy(found.body.decode())


# -- bulk ------------------------------------------------------------------------------------------


@pytest.fixture
async def dead(api: Client, monkeypatch: pytest.MonkeyPatch) -> int:
    """Many dead letters in two queues; steps are small."""
    monkeypatch.setattr(acts, "STEP", 4)
    jobs = [{"type": "mail", "queue": queue} for queue in ["mail"] * 10 + ["crawl"] * 3]
    await api.post("/v1/jobs/batch", {"jobs": jobs})
    leases = (await api.post("/v1/claim", {"limit": 20})).json["leases"]
    failed = [
        {"id": one["job"]["id"], "token": one["token"], "outcome": "fail", "retry": False}
        for one in leases
    ]
    await api.post("/v1/ack", {"acks": failed})
    return len(failed)


def _form(text: str) -> dict[str, str]:
    """The hidden fields of the form of the next step; none at the end."""
    part = text.partition("data-steps")[2].partition("</form>")[0]
    return {
        str(attrs["name"]): str(attrs.get("value") or "")
        for tag, attrs in elements(f"<form {part}")
        if tag == "input"
    }


async def _through(operator: Visitor, text: str, act: str) -> tuple[int, str]:
    """Sends step after step; how many there were, and the last answer."""
    steps = 0
    while fields := _form(text):
        found = await operator.send(f"/ui/dead/{act}", **fields)
        assert found.status == 200, found
        text, steps = found.body.decode(), steps + 1
    return steps, text


async def test_what_matches_is_replayed_in_steps(visit: Visit, api: Client, dead: int) -> None:
    """Counted before, bounded, each once; the others stay."""
    operator = visit("operator")
    shown = await operator.page("/ui/dead?queue=mail&act=replay")
    assert "Replay 10 jobs?" in tidy(shown)

    steps, last = await _through(operator, shown, "replay")

    assert steps >= 3
    assert "Replayed 10 jobs" in tidy(last)
    found = (await api.get("/v1/jobs?state=enqueued&queue=mail")).json["jobs"]
    assert len(found) == 10
    assert len({job["origin"] for job in found}) == 10
    again = await operator.page("/ui/dead?queue=mail&act=replay")
    assert "There is nothing to replay" in again


async def test_jobs_that_fail_after_the_count_are_not_meant(
    visit: Visit, api: Client, dead: int
) -> None:
    """A job that fails again does not go round for ever."""
    operator = visit("operator")
    shown = await operator.page("/ui/dead?queue=crawl&act=replay")
    made = await api.post("/v1/jobs", {"type": "mail", "queue": "crawl"})
    [lease] = (await api.post("/v1/claim", {"queues": ["crawl"]})).json["leases"]
    late = {"id": made.json["id"], "token": lease["token"], "outcome": "fail", "retry": False}
    await api.post("/v1/ack", {"acks": [late]})

    _, last = await _through(operator, shown, "replay")

    assert "Replayed 3 jobs" in tidy(last)
    assert "replayed_as" not in (await api.get(f"/v1/jobs/{made.json['id']}")).json


async def test_what_matches_is_purged(visit: Visit, api: Client, dead: int) -> None:
    """And is gone."""
    operator = visit("operator")
    shown = await operator.page("/ui/dead?act=purge")
    assert "deleted permanently" in shown

    _, last = await _through(operator, shown, "purge")

    assert f"Purged {dead} jobs" in tidy(last)
    assert (await api.get("/v1/dead")).json["jobs"] == []


async def test_a_bulk_act_touches_nothing_alive(visit: Visit, api: Client, jobs: Jobs) -> None:
    """Whatever state its form names."""
    operator = visit("operator")
    fields = {"state": "enqueued", "before": "9999999999999999", "total": "9"}

    assert (await operator.send("/ui/dead/purge", **fields)).status == 200

    assert await _state(api, jobs["enqueued"]) == "enqueued"
    assert await _state(api, jobs["completed"]) == "completed"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/ui/dead/replay", {}),
        ("/ui/dead/replay", {"before": "x"}),
        ("/ui/dead/explode", {"before": "1"}),
        ("/ui/dead/replay", {"before": "1", "cursor": "-1"}),
    ],
)
async def test_a_step_that_makes_no_sense_is_refused(
    visit: Visit, path: str, fields: dict[str, str]
) -> None:
    """By field."""
    assert (await visit("operator").send(path, **fields)).status == 422
