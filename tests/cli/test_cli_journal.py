"""`holdfast signal`, `job ID --journal` and `--log`, and replays from a step, over a service."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result
from tests.service.live import serving

from holdfast.attempts import AttemptError, error_entry
from holdfast.cli.main import cli
from holdfast.core.job import Envelope, Lease, NewJob, Parked, Rules, State
from holdfast.core.journal import Edge, Entry, EntryKind, Signal, await_signal, new_join
from holdfast.core.lifecycle import Transition, decide
from holdfast.store import Claim, Extension, Store
from holdfast.stores import open_store

LEASE_US = 60_000_000
T = TypeVar("T")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A store with every capability, which the command line reaches by HTTP."""
    with serving("memory://") as found:
        yield found


Use = Callable[[Callable[[Store], Awaitable[T]]], T]


@pytest.fixture
def use(url: str) -> Use[Any]:
    def used(act: Callable[[Store], Awaitable[T]]) -> T:
        async def main() -> T:
            store = open_store(url)
            await store.open()
            try:
                return await act(store)
            finally:
                await store.close()

        return asyncio.run(main())

    return used


@pytest.fixture
def call(url: str) -> Callable[..., Result]:
    def called(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["--store", url, *arguments], prog_name="holdfast")

    return called


@pytest.fixture
def id() -> str:
    return f"job-{secrets.token_hex(4)}"


def made(id: str, **more: Any) -> NewJob:
    """A job in a queue of its own."""
    return NewJob(
        tenant="acme", id=id, queue=id, envelope=Envelope("fulfil", "json", 1, b"{}"),
        rules=Rules(), **more,
    )  # fmt: skip


async def held(store: Store, id: str, **more: Any) -> Lease:
    await store.enqueue([made(id, **more)])
    claim = Claim(worker="w1", nonce=secrets.token_hex(8), limit=1, lease_us=LEASE_US, queues=(id,))
    [lease] = await store.claim(claim)
    return lease


async def write(store: Store, lease: Lease, *entries: Entry) -> None:
    one = Extension(
        tenant="acme", id=lease.job.id, token=lease.token, lease_us=LEASE_US, entries=entries
    )
    [answer] = await store.extend([one])
    assert answer.error is None


def step(name: str, value: bytes = b"1") -> Entry:
    return Entry(EntryKind.STEP, name, value)


def log(*lines: str) -> Entry:
    return Entry(EntryKind.LOG, "", json.dumps(lines).encode())


ERROR = error_entry(
    AttemptError(
        attempt=1, kind="shop.Refused", message="no", traceback="Traceback\n\x1b[31mno",
        worker="w1", started_at=1_000_000, ended_at=3_000_000,
    )
)  # fmt: skip


async def remembering(store: Store, id: str) -> None:
    """A parked job with one of everything."""
    lease = await held(store, id, edges=(Edge("target", "lines"),))
    await write(
        store, lease, step("charge", b'{"paid": 5}'), step("odd", b"\xff"), new_join("lines", 3),
        Entry(EntryKind.POSITION, "pages", b"7"), ERROR, log("first line", "\x1b[2Jsecond"),
    )  # fmt: skip
    await store.signal([Signal("acme", id, "other", b"true")])
    parked = decide(Parked(run_at=2**52, awaits=await_signal("ok")), lease.job, lease.token, 0.0)
    [answer] = await store.ack([parked])
    assert answer.error is None


# -- signal ----------------------------------------------------------------------------------------


def test_a_signal_is_sent_once(call: Any, use: Any, id: str) -> None:
    """The first value counts; a parked job wakes."""
    use(lambda store: remembering(store, id))

    sent = call("signal", id, "ok", '{"by": "ann"}', "--tenant", "acme", "--why", "seen")
    again = call("signal", id, "ok", "2", "--tenant", "acme", "--json")

    assert (sent.exit_code, sent.stdout) == (0, "")
    assert sent.stderr == f"{id} has the signal ok\n"
    assert json.loads(again.stdout) == {"id": id, "name": "ok", "stored": False}
    found = json.loads(call("job", id, "--json").stdout)
    assert (found["state"], found["awaits"]) == ("enqueued", None)
    [event] = [one for one in found["events"] if one["kind"] == "signaled"][-1:]
    assert event["by"].endswith(": seen")
    signals = json.loads(call("job", id, "--journal", "--json").stdout)["signals"]
    assert [one["value"] for one in signals] == [True, {"by": "ann"}]


def test_a_bad_signal_is_an_error(call: Any, use: Any, id: str) -> None:
    """A value that is no JSON, a missing job, an ended one."""
    use(lambda store: store.enqueue([made(id)]))

    assert "value: is not JSON" in call("signal", id, "ok", "{", "--tenant", "acme").stderr
    assert call("signal", id, "", "1", "--tenant", "acme").exit_code == 1
    assert call("signal", "nowhere", "ok", "--tenant", "acme").exit_code == 3
    assert call("signal", id, "ok", "--tenant", "globex").exit_code == 3
    assert call("cancel", id, "--tenant", "acme").exit_code == 0
    ended = call("signal", id, "ok", "--tenant", "acme")
    assert (ended.exit_code, "JOB_CANCELED" in ended.stderr) == (1, True)


# -- the journal -----------------------------------------------------------------------------------


def test_the_journal_of_a_job_is_shown(call: Any, use: Any, id: str) -> None:
    """For people: instants, values, the worker and the duration of an attempt; nothing that moves
    the cursor of a terminal.
    """
    use(lambda store: remembering(store, id))

    shown = call("job", id, "--tenant", "acme", "--journal")

    assert shown.exit_code == 0, shown.output
    for text in (
        "it waits for the signal 'ok'", "charge  {", '"paid": 5', "pages  7", "other  true",
        "lines: 0 of 3 ended", "attempt 1", "2.0 s, worker w1", "Traceback", "first line",
    ):  # fmt: skip
        assert text in shown.stdout, text
    assert "\x1b" not in shown.stdout
    assert "awaits       signal:ok" in call("job", id).stdout


def test_the_journal_as_json_is_complete(call: Any, use: Any, id: str) -> None:
    """Values that are no JSON are in base64."""
    use(lambda store: remembering(store, id))

    found = json.loads(call("job", "show", id, "--journal", "--json").stdout)

    charge, odd = sorted(found["steps"], key=lambda one: str(one["name"]))
    assert (charge["name"], charge["value"]) == ("charge", {"paid": 5})
    assert (odd["name"], odd["value_base64"]) == ("odd", "/w==")
    assert charge["at"].endswith("Z")
    assert found["joins"] == {"lines": {"total": 3, "left": 3, "failed": 0}}
    assert found["edges"] == [{"target": "target", "join": "lines", "on_failure": "fail"}]
    assert found["errors"][0]["started_at"] == "1970-01-01T00:00:01Z"
    assert found["log"] == ["first line", "\x1b[2Jsecond"]
    assert (found["awaits"], found["state"]) == ("signal:ok", "scheduled")


def test_a_job_without_a_journal_has_an_empty_one(call: Any, use: Any, id: str) -> None:
    """And a job that is not there is an error."""
    use(lambda store: store.enqueue([made(id)]))

    assert call("job", id, "--journal").stdout == f"fulfil {id}, enqueued\n"
    assert call("job", "nowhere", "--journal").exit_code == 3


# -- the log ---------------------------------------------------------------------------------------


def test_the_log_is_printed(call: Any, use: Any, id: str) -> None:
    """As lines, or as JSON lines."""
    use(lambda store: remembering(store, id))

    lines = call("job", id, "--log").stdout.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == ["first line", "\\x1b[2Jsecond"]
    first, _ = call("job", id, "--log", "--json").stdout.splitlines()
    assert json.loads(first)["line"] == "first line"


def test_the_log_is_followed_until_the_job_ends(url: str, use: Any, id: str) -> None:
    """Also lines that come with the end."""
    lease = use(lambda store: held(store, id))

    async def main() -> str:
        following = asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", "--store", url, "job", id, "--log", "--follow",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        process = await following
        assert process.stdout is not None
        store = open_store(url)
        await store.open()
        try:
            async with asyncio.timeout(30):
                await write(store, lease, log("one"))
                first = await process.stdout.readline()
                done = Transition(
                    tenant="acme", id=id, token=lease.token, to=State.COMPLETED,
                    entries=(log("two"),),
                )  # fmt: skip
                await store.ack([done])
                rest = await process.stdout.read()
                assert await process.wait() == 0
        finally:
            await store.close()
            if process.returncode is None:
                process.kill()
        return (first + rest).decode()

    told = asyncio.run(main())

    assert [line.split("  ", 1)[1] for line in told.splitlines()] == ["one", "two"]


@pytest.mark.parametrize(
    "options",
    [("--journal", "--explain"), ("--log", "--journal"), ("--follow",), ("--journal", "--follow")],
    ids=str,
)
def test_options_that_exclude_each_other_are_refused(call: Any, options: tuple[str, ...]) -> None:
    """2, before a store is opened."""
    assert call("job", "x", *options).exit_code == 2


# -- replay ----------------------------------------------------------------------------------------


async def failed(store: Store, id: str, *names: str) -> None:
    lease = await held(store, id)
    for name in names:
        await write(store, lease, step(name))
    dead = Transition(tenant="acme", id=id, token=lease.token, to=State.FAILED, error="no")
    [answer] = await store.ack([dead])
    assert answer.error is None


def test_dead_letters_are_replayed_from_a_step(call: Any, use: Any, id: str) -> None:
    """Those that have it; the others are named by their number and stay."""
    use(lambda store: failed(store, f"{id}-a", "one", "two"))
    use(lambda store: failed(store, f"{id}-b", "one"))
    ids = (f"{id}-a", f"{id}-b")

    done = call("dead", "replay", *ids, "--from-step", "two")

    assert (done.exit_code, done.stdout) == (0, "1 dead letter replayed\n")
    assert "1 dead letter not replayed: no step 'two'" in done.stderr
    new = json.loads(call("job", ids[0], "--json").stdout)["replayed_as"]
    steps = json.loads(call("job", new, "--journal", "--json").stdout)["steps"]
    assert [one["name"] for one in steps] == ["one"]
    none = call("dead", "replay", ids[1], "--from-step", "three")
    assert (none.exit_code, "from_step" in none.stderr) == (1, True)
    assert json.loads(call("job", ids[1], "--json").stdout)["replayed_as"] is None
