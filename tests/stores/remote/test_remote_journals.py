"""Journals over HTTP: workers read large ones apart, batches go in parts, one format for both."""

from __future__ import annotations

import msgspec
import pytest
from tests.servers.service import Host, Place
from tests.stores.remote.conftest import Opened, Tokens

from holdfast.core.bounds import STEP_BYTES_MAX
from holdfast.core.errors import JobNotFound, StoreError, StoreUnsupported
from holdfast.core.job import Released
from holdfast.core.journal import Edge, EntryKind, Signal
from holdfast.core.lifecycle import decide
from holdfast.job_journal import with_left_out
from holdfast.service.rights import Caller, Right
from holdfast.store import Claim, Ref
from holdfast.stores.remote import wire
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, HOUR, MAIL, finding, job

ALL = frozenset(Right)
CALLERS = (
    Caller(name="root", tenant=None, rights=ALL),
    Caller(name="mailer", tenant=ACME, rights=ALL, queues=(MAIL,)),
    Caller(
        name="worker", tenant=ACME, rights=frozenset({Right.WORK}), queues=(MAIL,), types=("send",)
    ),
    Caller(name="sender", tenant=ACME, rights=ALL, types=("send",)),
)


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("journals", auth=Tokens(*CALLERS))


async def test_a_worker_reads_what_its_lease_leaves_out(place: Place, opened: Opened) -> None:
    """P16, P19: with the right to work alone; of a job that runs, of its queues and types."""
    root, worker = await opened(place, "root"), await opened(place, "worker")
    await root.enqueue([job("a"), job("b"), job("c", queue=AUDIO), job("d", type="pay")])
    value = b"x" * STEP_BYTES_MAX
    await root.signal([Signal(ACME, id, "ok", value) for id in "abcd"])
    leases = {one.job.id: one for one in await root.claim(a_claim(4))}
    await root.ack([decide(Released(0), leases["b"].job, leases["b"].token, 0.0)])
    assert [leases[id].left_out for id in "abcd"] == [1] * 4

    whole = await with_left_out(worker, leases["a"])

    assert [(one.name, one.value) for one in whole.journal] == [("ok", value)]
    for id in "bcd":
        with pytest.raises(JobNotFound):
            await with_left_out(worker, leases[id])
    with pytest.raises(StoreError, match="no right to read"):
        await worker.find(msgspec.structs.replace(finding(ids=("a",)), journals=True))


def a_claim(limit: int) -> Claim:
    return Claim(worker="w", nonce="n" * 20, limit=limit, lease_us=HOUR, tenants=(ACME,))


async def test_many_large_signals_go_in_parts(place: Place, opened: Opened) -> None:
    """A batch that is larger than a body; the answers stay in their places."""
    store = await opened(place, "root")
    number = store.hello.body_max // STEP_BYTES_MAX + 2
    names = [f"j{each}" for each in range(number)]
    await store.enqueue([job(name) for name in names])
    value = bytes(range(256)) * (STEP_BYTES_MAX // 256)

    answers = await store.signal([Signal(ACME, name, "ok", value) for name in names])

    assert [(answer.id, answer.stored) for answer in answers] == [(name, True) for name in names]
    find = msgspec.structs.replace(finding(ids=(names[-1],)), journals=True)
    [journal] = (await store.find(find)).journals.values()
    assert [(one.kind, one.value) for one in journal.entries] == [(EntryKind.SIGNAL, value)]


async def test_a_service_of_the_old_format_is_refused(
    place: Place, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would drop the journals of leases, and steps would run again."""
    store = await opened(place, "root")
    old = msgspec.structs.replace(store.hello, format=wire.FORMAT - 1)

    async def hello(self: object) -> wire.Hello:
        return old

    monkeypatch.setattr("holdfast.stores.remote.client.Client.hello", hello)
    with pytest.raises(StoreUnsupported, match="run one version"):
        await opened(place, "root")


async def test_steps_are_what_the_service_has(place: Place, opened: Opened) -> None:
    """Asked for when the store is opened."""
    assert (await opened(place, "root")).capabilities.steps


# -- some queues and types -------------------------------------------------------------------------


async def test_a_token_of_some_queues_signals_only_their_jobs(place: Place, opened: Opened) -> None:
    """P7: a job of another queue is not there, whatever its state is."""
    root, mailer = await opened(place, "root"), await opened(place, "mailer")
    await root.enqueue([job("mine", queue=MAIL), job("beside", queue=AUDIO)])
    await root.enqueue([job("ended", queue=AUDIO)])
    await root.cancel([Ref(ACME, "ended")])

    answers = await mailer.signal(
        [Signal(ACME, id, "ok", b"1") for id in ("beside", "mine", "ended", "nowhere")]
    )

    assert [answer.stored for answer in answers] == [False, True, False, False]
    errors = [type(answer.error) for answer in answers]
    assert errors == [JobNotFound, type(None), JobNotFound, JobNotFound]
    assert (await root.signal([Signal(ACME, "beside", "ok", b"1")]))[0].stored


async def test_a_token_of_some_types_signals_only_their_jobs(place: Place, opened: Opened) -> None:
    """P7: a signal is input of a handler, as a payload is."""
    root, sender = await opened(place, "root"), await opened(place, "sender")
    await root.enqueue([job("a", type="send"), job("b", type="pay")])

    assert (await sender.signal([Signal(ACME, "a", "ok", b"1")]))[0].stored
    for other in (Signal(ACME, "b", "ok", b"1"), Signal(GLOBEX, "a", "ok", b"1")):
        with pytest.raises(StoreError, match="not allowed"):
            await sender.signal([other])


async def test_a_token_of_some_queues_joins_only_their_jobs(place: Place, opened: Opened) -> None:
    """P7: the end of its job must not move, or fail, a job of another queue; nor one that may yet
    appear there.
    """
    root, mailer = await opened(place, "root"), await opened(place, "mailer")
    await root.enqueue([job("mine", queue=MAIL, parents=1), job("beside", queue=AUDIO, parents=1)])

    for target in ("beside", "nowhere"):
        with pytest.raises(JobNotFound):
            await mailer.enqueue([job("x", queue=MAIL, edges=(Edge(target),))])
    with pytest.raises(JobNotFound):  # Its id is taken by the other job, which it would join.
        await mailer.enqueue(
            [job("beside", queue=MAIL), job("x", queue=MAIL, edges=(Edge("beside"),))]
        )
    both = [
        job("child", queue=MAIL, parents=1),
        job("parent", queue=MAIL, edges=(Edge("child"), Edge("mine"))),
    ]
    assert all(made.created for made in await mailer.enqueue(both))
    assert {one.id for one in (await root.find(finding())).jobs} == {
        "mine", "beside", "child", "parent",
    }  # fmt: skip
