"""Journals over the native API: what a worker in another language remembers, and who pays."""

from __future__ import annotations

import base64

import pytest
from tests.service.asgi import Client
from tests.service.remembering import Json, ack, by_name, claimed, extend, held, journal, step

from holdfast.core.bounds import (
    ENTRIES_MAX,
    LEASE_JOURNAL_MAX,
    LOG_BYTES_MAX,
    SIGNALS_MAX,
    STEP_BYTES_MAX,
    STEPS_MAX,
)
from holdfast.core.journal import Entry, EntryKind
from holdfast.service.service import Service
from holdfast.store import Extension

# -- steps -----------------------------------------------------------------------------------------


async def test_the_next_attempt_finds_what_was_remembered(client: Client) -> None:
    """By a heartbeat and by an ack; a second result of a step is ignored, a position replaced."""
    lease = await held(client)
    assert "journal" not in lease
    here = {"kind": "position", "name": "pages", "value": {"page": 1}}
    kept = await extend(client, lease, entries=[step("charge", {"paid": 5}), here])
    assert "error" not in kept.json["leases"][0]

    there = {**here, "value": {"page": 2}}
    await ack(client, lease, "release", entries=[step("charge", "again"), step("send"), there])

    again = await claimed(client)
    assert by_name(again["journal"]) == {
        ("step", "charge"): {"paid": 5},
        ("step", "send"): None,
        ("position", "pages"): {"page": 2},
    }
    assert all(one["at"] for one in again["journal"])


async def test_a_value_may_be_bytes(client: Client) -> None:
    """In base64, there and back."""
    coded = base64.b64encode(bytes(range(256))).decode()
    lease = await held(client, id="a")
    entry = {"kind": "step", "name": "s", "value_base64": coded}
    await ack(client, lease, "release", entries=[entry])

    assert (await claimed(client))["journal"][0]["value_base64"] == coded
    assert (await journal(client, "a"))["steps"][0]["value_base64"] == coded


async def test_a_large_journal_is_read_apart(client: Client) -> None:
    """P15: a claim leaves it out and says so; the worker reads it while the job runs."""
    lease = await held(client, id="a")
    assert "left_out" not in lease
    await ack(client, lease, "release", entries=[step("large", "x" * LEASE_JOURNAL_MAX)])
    assert (await client.get("/v1/jobs/a/remembered")).status == 404

    again = await claimed(client)

    assert (again.get("journal"), again["left_out"]) == (None, 1)
    found = (await client.get("/v1/jobs/a/remembered")).json
    assert by_name(found["journal"]) == {("step", "large"): "x" * LEASE_JOURNAL_MAX}
    await ack(client, again, "release", log=["a line is for people"])
    assert by_name((await claimed(client)).get("journal", [])) == {}
    assert len((await client.get("/v1/jobs/a/remembered")).json["journal"]) == 1


async def test_without_the_lease_nothing_is_written(client: Client) -> None:
    """P3: a worker that was too late, and one that made up a token."""
    lease = await held(client, id="a")
    await ack(client, lease, "release")

    late = await extend(client, lease, entries=[step("s")], log=["late"])
    forged = await extend(client, {**lease, "token": "x"}, entries=[step("s")])
    acked = await ack(client, lease, "complete", entries=[step("s")])

    for answer in (late.json["leases"][0], forged.json["leases"][0], acked.json["acks"][0]):
        assert answer["error"]["status"] == 409
    assert (await journal(client, "a"))["steps"] == []


async def test_a_full_journal_refuses_the_entry_alone(client: Client, service: Service) -> None:
    """P19: the item is told so, and the lease stays."""
    lease = await held(client, id="a")
    for start in range(0, STEPS_MAX, ENTRIES_MAX):
        some = tuple(
            Entry(EntryKind.STEP, f"s{number}", b"1")
            for number in range(start, start + ENTRIES_MAX)
        )
        extension = Extension(
            tenant="acme", id="a", token=lease["token"], lease_us=60_000_000, entries=some
        )
        [answer] = await service.store.extend([extension])
        assert answer.error is None

    refused = (await extend(client, lease, entries=[step("more")])).json["leases"][0]
    assert (refused["error"]["code"], refused["error"]["status"]) == ("JOURNAL_FULL", 409)
    assert (await ack(client, lease, "complete")).json["acks"][0]["state"] == "completed"


LARGE = "x" * STEP_BYTES_MAX


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"entries": [step("")]}, "entries[0].name"),
        ({"entries": [step("x" * 129)]}, "entries[0].name"),
        ({"entries": [step("a\x00b")]}, "entries.name"),
        ({"entries": [step("s", LARGE)]}, "entries.value"),
        ({"entries": [{**step("s"), "kind": "signal"}]}, "entries[0].kind"),
        ({"entries": [{**step("s"), "kind": "error"}]}, "entries[0].kind"),
        ({"entries": [{**step("s"), "value_base64": "!"}]}, "entries[0].value"),
        ({"entries": [{"kind": "step", "name": "s", "value_base64": "!"}]}, "entries[0].value"),
        ({"entries": [{"kind": "join", "name": "j", "value": "many"}]}, "entries.value"),
        ({"entries": [{"kind": "join", "name": "j", "value": 100_001}]}, "entries.value"),
        ({"entries": [step(f"s{number}") for number in range(ENTRIES_MAX)]}, "entries"),
        ({"log": ["x" * LOG_BYTES_MAX]}, "log"),
        ({"log": ["x"] * 101}, "log"),
    ],
    ids=lambda one: str(one)[:40],
)
async def test_bad_entries_are_refused_by_name(client: Client, more: Json, field: str) -> None:
    """422, in a heartbeat and in an ack; nothing of the call is done."""
    lease = await held(client, id="a")

    for where, answer in (
        ("leases[0]", await extend(client, lease, **more)),
        ("acks[0]", await ack(client, lease, "complete", **more)),
    ):
        assert answer.status == 422, answer
        assert answer.json["field"].startswith(f"{where}.{field}"), answer
    assert (await journal(client, "a"))["steps"] == []


# -- parking, signals, joins -----------------------------------------------------------------------


async def test_a_job_parks_until_its_signal(client: Client) -> None:
    """It costs no attempt; the signal is in the next lease."""
    lease = await held(client, id="a")
    parked = await ack(client, lease, "park", awaits="signal:approved")
    assert parked.json["acks"][0] == {"id": "a", "state": "scheduled"}
    assert (await client.get("/v1/jobs/a")).json["awaits"] == "signal:approved"
    assert (await client.post("/v1/claim", {})).json["leases"] == []

    sent = await client.post("/v1/jobs/a/signal", {"name": "approved", "value": {"by": "ann"}})
    twice = await client.post("/v1/jobs/a/signal", {"name": "approved", "value": 2})

    assert (sent.json, twice.json) == (
        {"id": "a", "stored": True},
        {"id": "a", "stored": False},
    )
    lease = await claimed(client)
    assert lease["job"]["attempt"] == 1
    assert by_name(lease["journal"]) == {("signal", "approved"): {"by": "ann"}}


async def test_a_job_parks_for_a_time(client: Client) -> None:
    """By a delay or an instant; it needs one of them, or something that it awaits."""
    await held(client, id="a")
    lease = await held(client, id="b")

    await ack(client, lease, "park", until="2199-01-01T00:00:00Z")
    assert (await client.get("/v1/jobs/b")).json["run_at"] == "2199-01-01T00:00:00Z"
    lease = await held(client, id="c")
    for more, field in (
        ({}, "after"),
        ({"after": 1, "until": "2199-01-01T00:00:00Z"}, "until"),
        ({"awaits": "nothing"}, "awaits"),
        ({"awaits": "signal:"}, "awaits"),
        ({"awaits": "join:" + "x" * 129}, "awaits"),
    ):
        answer = await ack(client, lease, "park", **more)
        assert (answer.status, answer.json["field"]) == (422, f"acks[0].{field}"), answer
    assert (await ack(client, lease, "park", after=5)).json["acks"][0]["state"] == "scheduled"


async def test_a_job_parks_until_its_children_have_ended(client: Client) -> None:
    """A join of two: the children name it, whoever enqueues them."""
    lease = await held(client, id="parent")
    join = {"kind": "join", "name": "lines", "value": 2}
    await extend(client, lease, entries=[join])
    edge = {"target": "parent", "join": "lines", "on_failure": "run"}
    children = [{"type": "ship", "id": id, "edges": [edge]} for id in ("c1", "c2")]
    assert (await client.post("/v1/jobs/batch", {"jobs": children})).status == 200
    await ack(client, lease, "park", awaits="join:lines")

    for _ in range(2):
        child = await claimed(client)
        assert child["job"]["type"] == "ship"
        await ack(client, child, "fail", retry=False)

    lease = await claimed(client)
    assert lease["job"]["id"] == "parent"
    [entry] = lease["journal"]
    assert entry["value"] == {"total": 2, "left": 0, "failed": 2}
    assert (await journal(client, "c1"))["edges"] == [edge]
    assert (await journal(client, "parent"))["joins"] == [
        {"name": "lines", "total": 2, "left": 0, "failed": 2}
    ]


@pytest.mark.parametrize(
    "edge",
    [
        {"target": ""},
        {"target": "x" * 300},
        {"target": "a\x00"},
        {"target": "a", "join": "x" * 129},
        {"target": "a", "on_failure": "explode"},
        {"target": "a", "more": 1},
    ],
    ids=str,
)
async def test_bad_edges_are_refused(client: Client, edge: Json) -> None:
    """422, by name."""
    answer = await client.post("/v1/jobs", {"type": "mail", "edges": [edge]})

    assert answer.status == 422, answer


async def test_a_signal_is_refused_where_nobody_can_read_it(client: Client) -> None:
    """A missing job and an ended one, a value that is no JSON or too large, a bad name."""
    lease = await held(client, id="a")
    for body in ({"name": ""}, {"name": "x" * 129}, {"name": "a\x00"}, {"name": "s", "more": 1}):
        assert (await client.post("/v1/jobs/a/signal", body)).status == 422
    large = await client.post("/v1/jobs/a/signal", {"name": "s", "value": LARGE})
    deep = b'{"name": "s", "value": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert (large.status, large.json["field"]) == (422, "value")
    assert (await client.post("/v1/jobs/a/signal", deep)).status in (400, 422)

    await ack(client, lease, "complete")
    ended = await client.post("/v1/jobs/a/signal", {"name": "s"})
    nowhere = await client.post("/v1/jobs/b/signal", {"name": "s"})
    assert (ended.status, ended.json["code"]) == (409, "JOB_TERMINAL")
    assert (nowhere.status, nowhere.json["code"]) == (404, "JOB_NOT_FOUND")


async def test_a_job_takes_so_many_signals(client: Client) -> None:
    """P19: a producer cannot fill the store by signals to one job."""
    await held(client, id="a")
    for number in range(SIGNALS_MAX):
        sent = await client.post("/v1/jobs/a/signal", {"name": f"s{number}"})
        assert sent.json["stored"]

    more = await client.post("/v1/jobs/a/signal", {"name": "more"})
    assert (more.status, more.json["code"]) == (409, "JOURNAL_FULL")


async def test_who_sent_a_signal_is_in_its_event(client: Client) -> None:
    """P14: the token's name and the reason, but not the value."""
    await held(client, id="a")
    body = {"name": "approved", "value": "SECRET"}
    await client.post("/v1/jobs/a/signal", body, holdfast_reason="looked at it")

    found = await client.get("/v1/jobs/a/events")
    event = found.json["events"][-1]
    assert (event["kind"], event["note"]) == ("signaled", "approved")
    assert event["by"].endswith("looked at it")
    assert b"SECRET" not in found.body
