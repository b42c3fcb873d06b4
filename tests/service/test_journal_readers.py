"""What readers of a journal get over the native API: errors, the log, large and hostile values."""

from __future__ import annotations

import base64

import msgspec
from tests.service.asgi import Client
from tests.service.remembering import ack, by_name, claimed, extend, held, journal, step

from holdfast.core.journal import Entry, EntryKind, Signal
from holdfast.service.api.journals import SHOWN_MAX
from holdfast.service.service import Service
from holdfast.store import Extension

# -- errors and the log ----------------------------------------------------------------------------


async def test_errors_are_kept_per_attempt(client: Client) -> None:
    """As the worker tells them, with the worker's name and the times."""
    await client.post("/v1/jobs", {"type": "mail", "id": "a"})
    for number in (1, 2):
        [lease] = (await client.post("/v1/claim", {"worker": f"w{number}"})).json["leases"]
        await ack(
            client, lease, "fail", after=0, error=f"no {number}",
            error_kind="ConnectionError", traceback="at line 1", seconds=5,
        )  # fmt: skip

    first, second = (await journal(client, "a"))["errors"]
    assert (first["attempt"], first["worker"], first["message"]) == (1, "w1", "no 1")
    assert (second["kind"], second["traceback"]) == ("ConnectionError", "at line 1")
    assert second["started_at"] < second["ended_at"]


async def test_a_long_traceback_is_cut_not_refused(client: Client) -> None:
    """A failure must be stored whatever is said about it."""
    lease = await held(client, id="a")
    text = "\x01é" * 100_000

    answer = await ack(client, lease, "fail", error=text, traceback=text, retry=False)

    assert answer.json["acks"][0]["state"] == "failed"
    [error] = (await journal(client, "a"))["errors"]
    assert 1000 < len(error["traceback"]) < 20_000


async def test_the_log_keeps_its_lines_in_order(client: Client) -> None:
    """Of heartbeats and of the ack."""
    lease = await held(client, id="a")
    await extend(client, lease, log=["one", "<b>two</b>"])
    await ack(client, lease, "complete", log=["three"])

    assert (await journal(client, "a"))["log"] == ["one", "<b>two</b>", "three"]


# -- reading ---------------------------------------------------------------------------------------


async def test_large_values_are_left_out_unless_asked_for(client: Client) -> None:
    """A page of the journal is small by default."""
    lease = await held(client, id="a")
    await extend(client, lease, entries=[step("large", "x" * SHOWN_MAX), step("small", 1)])

    large, small = (await journal(client, "a"))["steps"]
    assert (large["size"], large["left_out"], "value" in large) == (SHOWN_MAX + 2, True, False)
    assert (small["size"], small["value"], "left_out" in small) == (1, 1, False)
    [whole, _] = (await journal(client, "a", "?full=true"))["steps"]
    assert whole["value"] == "x" * SHOWN_MAX


HOSTILE = {
    "deep": b"[" * 6_000,
    "no text": b'"\xff"',
    "no JSON": b'1,"tenant":"globex"',
    "half a character": b'"\\ud800"',
    "nothing": b"",
}


async def test_hostile_values_do_not_stop_a_reader(client: Client, service: Service) -> None:
    """Values from the verbs of the store are any bytes: none breaks or forges an answer."""
    lease = await held(client, id="a")
    entries = [
        *(Entry(EntryKind.STEP, name, value) for name, value in HOSTILE.items()),
        *(Entry(EntryKind.LOG, "", value) for value in HOSTILE.values()),
        *(Entry(EntryKind.ERROR, str(n), value) for n, value in enumerate(HOSTILE.values())),
        Entry(EntryKind.ERROR, "9", _error(started_at=10**17)),
        Entry(EntryKind.ERROR, "8", _error(started_at=-1)),
    ]
    extension = Extension(
        tenant="acme", id="a", token=lease["token"], lease_us=60_000_000, entries=tuple(entries)
    )
    assert (await service.store.extend([extension]))[0].error is None
    sent = [Signal("acme", "a", name, value) for name, value in HOSTILE.items()]
    assert all(answer.stored for answer in await service.store.signal(sent))

    found = await journal(client, "a", "?full=true")
    assert {one["name"] for one in found["steps"]} == set(HOSTILE)
    assert {one["name"] for one in found["signals"]} == set(HOSTILE)
    assert (found["log"], found["errors"]) == ([], [])
    coded = {one["name"]: one.get("value_base64") for one in found["steps"]}
    assert coded["no JSON"] == base64.b64encode(HOSTILE["no JSON"]).decode()
    await ack(client, lease, "release")
    assert len((await claimed(client))["journal"]) == 2 * len(HOSTILE)


def _error(**more: object) -> bytes:
    fields = {
        "attempt": 1, "kind": "", "message": "", "traceback": "", "worker": "",
        "started_at": 0, "ended_at": 0,
    }  # fmt: skip
    return msgspec.json.encode({**fields, **more})


# -- replay ----------------------------------------------------------------------------------------


async def test_a_replay_may_start_from_a_step(client: Client) -> None:
    """It remembers what was finished before; a step that is not there is named."""
    lease = await held(client, id="a")
    await extend(client, lease, entries=[step("one", 1)])
    await extend(client, lease, entries=[step("two", 2)])
    await ack(client, lease, "fail", retry=False)

    wrong = await client.post("/v1/jobs/a/replay", {"from_step": "tow"})
    assert (wrong.status, wrong.json["field"]) == (422, "from_step")
    assert "two" in wrong.json["detail"]
    made = await client.post("/v1/jobs/a/replay", {"from_step": "two"})
    assert made.status == 200, made

    again = await claimed(client)
    assert again["job"]["id"] == made.json["replayed_as"]
    assert by_name(again["journal"]) == {("step", "one"): 1}
