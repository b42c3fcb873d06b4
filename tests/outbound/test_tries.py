"""The tries of one call, with a recorder for a service and time that a test moves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.outbound.conftest import NO_ANSWER, NOT_SENT, Desk, Recorder, Time

from holdfast import Context, Fail, JobRecord, State
from holdfast.context import StopReason
from holdfast.core.edge_bounds import OUTBOUND_AFTER_S_MAX
from holdfast.core.errors import OutboundLost, OutboundRefused
from holdfast.core.job import Reason
from holdfast.outbound import Answer, Outbound
from holdfast.testing import drain

hosts = iter(range(10_000))


def client(recorder: Recorder, time: Time, **options: Any) -> Outbound:
    """A client of a host that no other test calls, so that it has a circuit of its own."""
    recorder.time = time
    base = f"https://api{next(hosts)}.example.com/v1"
    return Outbound(base, transport=recorder, timing=time.timing, **options)


async def posted(
    desk: Desk, crm: Outbound, *, runs: int = 1, options: Any = None, **rules: Any
) -> JobRecord:
    """A job that makes one call and returns its status."""

    async def handler(ctx: Context) -> int:
        answer = await crm.post(ctx, "/contacts", json={"name": "Ann"}, **(options or {}))
        return answer.status

    return await desk.run(handler, runs=runs, **rules)


async def test_delays_grow_while_the_service_is_busy(desk: Desk) -> None:
    """S4.22: 200 -> 400 -> 800 ms, each with its jitter."""
    time, recorder = Time(chances=[0.0, 0.5, 0.999]), Recorder(429, 429, 429)

    job = await posted(desk, client(recorder, time))

    assert job.state is State.COMPLETED
    assert time.pauses == [0.2, pytest.approx(0.58), pytest.approx(1.519, abs=0.001)]


@pytest.mark.parametrize("step", [429, 502, 503, 504, NOT_SENT, NO_ANSWER], ids=str)
async def test_what_may_pass_is_tried_again_with_the_same_key(desk: Desk, step: Any) -> None:
    """S4.26: the key lets a service recognise a call whose answer was lost."""
    recorder = Recorder(step, step)

    job = await posted(desk, client(recorder, Time()))

    assert job.state is State.COMPLETED
    assert len(recorder.sent) == 3
    assert len({request.headers["idempotency-key"] for request, _ in recorder.sent}) == 1


@pytest.mark.parametrize("status", [200, 302, 400, 401, 404, 409, 422, 500, 501])
async def test_other_statuses_are_answers(desk: Desk, status: int) -> None:
    """The handler decides about them."""
    recorder = Recorder(status)

    job = await posted(desk, client(recorder, Time()))

    assert job.state is State.COMPLETED
    assert len(recorder.sent) == 1


async def test_a_retry_after_is_waited_for(desk: Desk) -> None:
    """In seconds or as a date, but never less than the own delay."""
    time = Time(chances=[0.0] * 3)
    recorder = Recorder((429, "7"), (503, "Thu, 01 Jan 1970 00:16:52 GMT"), (429, "0.1"))

    await posted(desk, client(recorder, time))

    assert time.pauses == [7.0, 5.0, 0.8]


async def test_a_used_up_budget_hands_over_to_the_policy_of_the_job(desk: Desk) -> None:
    """S4.26, S4.39: the job waits as its type says, and its attempt counts."""
    time, recorder = Time(chances=[0.0] * 9), Recorder(*[503] * 99)

    job = await posted(desk, client(recorder, time, budget=1.5))

    assert (job.state, job.attempt) == (State.RETRYING, 1)
    assert time.pauses == [0.2, 0.4, 0.8]
    assert "status 503" in (job.error or "")
    assert job.run_at == desk.clock.now() + 200_000  # "brisk": 0.2 s after the first attempt.


async def test_a_retry_after_beyond_the_budget_delays_the_job(desk: Desk) -> None:
    """The slot is free meanwhile; the policy's delay is the least."""
    recorder = Recorder((429, "600"))

    job = await posted(desk, client(recorder, Time()))

    assert job.state is State.RETRYING
    assert job.run_at == desk.clock.now() + 600_000_000
    assert len(recorder.sent) == 1


async def test_a_service_cannot_delay_a_job_for_years(desk: Desk) -> None:
    """A header is no reason to lose a job."""
    job = await posted(desk, client(Recorder((503, "9" * 30)), Time()))

    assert job.run_at == desk.clock.now() + int(OUTBOUND_AFTER_S_MAX) * 1_000_000


async def test_a_short_retry_after_does_not_hurry_the_policy(desk: Desk) -> None:
    """In a long outage all attempts of a job would be used up within seconds."""
    recorder = Recorder(*[(503, "0.3")] * 9)

    job = await posted(desk, client(recorder, Time(), budget=0.2), retry="patient")

    assert job.run_at == desk.clock.now() + 60_000_000


async def test_each_try_is_bounded_by_what_is_left_of_the_budget(desk: Desk) -> None:
    """No try goes on after the call has to end."""
    time = Time(chances=[0.0] * 9)
    recorder = Recorder(*[NO_ANSWER] * 9, takes_s=4.0)

    await posted(desk, client(recorder, time, timeout=4, budget=10))

    assert [round(timeout_s, 3) for _, timeout_s in recorder.sent] == [4, 4, 1.4]


async def test_a_try_ends_before_the_lease_and_the_timeout_of_the_job(desk: Desk) -> None:
    """P3: another worker may run the job when the lease has ended."""
    recorder = Recorder()
    crm = client(recorder, Time(), timeout=500, budget=500)

    await posted(desk, crm)
    await posted(desk, crm, timeout=5)

    (_, of_lease), (_, of_timeout) = recorder.sent
    assert desk.app.config.lease_s - 5 < of_lease <= desk.app.config.lease_s
    assert 0 < of_timeout <= 5


async def test_a_pause_that_does_not_fit_into_the_lease_is_not_made(desk: Desk) -> None:
    """The job is given back instead."""
    time = Time()

    job = await posted(desk, client(Recorder((429, "90")), time, budget=500))

    assert (job.state, time.pauses) == (State.RETRYING, [])


async def test_a_call_without_a_key_is_not_repeated_when_its_answer_is_lost(desk: Desk) -> None:
    """The service could not recognise it. What it surely has not done is repeated."""
    raised: list[OutboundLost] = []
    recorder = Recorder(NOT_SENT, 429, NO_ANSWER)
    crm = client(recorder, Time())

    async def handler(ctx: Context) -> int:
        try:
            await crm.post(ctx, "/contacts", key=None)
        except OutboundLost as error:
            raised.append(error)
        recorder.script = [503]
        return (await crm.post(ctx, "/contacts", key=None)).status

    job = await desk.run(handler)

    assert job.state is State.COMPLETED
    assert [error.code for error in raised] == ["OUTBOUND_LOST"]
    assert len(recorder.sent) == 4
    assert "idempotency-key" not in recorder.sent[0][0].headers


async def test_a_failing_host_is_left_alone_by_the_whole_process(desk: Desk) -> None:
    """S4.39: other clients of the host do not call it either, and one trial closes the circuit."""
    time, recorder = Time(chances=[0.0] * 99), Recorder(*[NO_ANSWER] * 5)
    one = client(recorder, time, failures=3, rest=30)
    two = Outbound(
        one._base + "/other", transport=recorder, timing=time.timing, failures=3, rest=30
    )

    first = await posted(desk, one)
    second = await posted(desk, two)

    assert len(recorder.sent) == 3
    assert [job.run_at for job in (first, second)] == [
        pytest.approx(desk.clock.now() + 30_000_000, abs=1_000_000)
    ] * 2
    assert "circuit is open" in (second.error or "")
    recorder.script = []
    time.now_s += 30
    assert (await posted(desk, two)).state is State.COMPLETED
    assert (await posted(desk, one)).state is State.COMPLETED


async def test_a_busy_service_does_not_open_the_circuit(desk: Desk) -> None:
    """It is there; 429 speaks of one caller."""
    recorder = Recorder(*[429] * 5)

    job = await posted(desk, client(recorder, Time(), failures=2))

    assert job.state is State.COMPLETED


async def test_every_try_is_a_line_of_the_log_without_secrets(desk: Desk) -> None:
    """S4.42: an operator sees when the service was called, and what came back."""
    recorder = Recorder(NOT_SENT, (503, "3"))
    crm = client(recorder, Time(), headers={"Authorization": "secret"})

    job = await posted(desk, crm, options={"params": {"token": "secret"}})

    lines = await desk.lines(job.id)
    place = crm._base.removeprefix("https://")
    assert [line.split(" in ")[0] for line in lines] == [
        f"POST {place}/contacts: it cannot be reached (refused)",
        f"POST {place}/contacts: status 503",
        f"POST {place}/contacts: status 200",
    ]
    assert lines[1].endswith("(try 2, asks for 3 s)")
    assert "secret" not in "".join(lines)


async def test_the_log_of_many_long_calls_is_bounded(desk: Desk) -> None:
    """It is kept with the job."""
    crm = client(Recorder(), Time())

    async def handler(ctx: Context) -> None:
        for number in range(300):
            await crm.get(ctx, f"/{'a' * 2000}/{number}")

    lines = await desk.lines((await desk.run(handler)).id)

    assert sum(map(len, lines)) < 8192
    assert "299" not in lines[-1], "the path is cut"


async def test_a_stopped_run_begins_no_further_try(desk: Desk) -> None:
    """A canceled job must not call on."""
    recorder = Recorder(503, 503)
    crm = client(recorder, Time())

    async def handler(ctx: Context) -> None:
        ctx.stop(StopReason.SHUTDOWN)
        await crm.post(ctx, "/contacts")

    await desk.run(handler)

    assert recorder.sent == []


def test_a_check_fails_for_good_what_another_attempt_would_meet_again() -> None:
    """P5: a job that cannot succeed does not waste its attempts."""

    def answer(status: int, body: bytes = b"") -> Answer:
        return Answer(status=status, headers={}, body=body, method="GET", place="a.example/b")

    assert answer(201, b'{"id": 7}').check().json() == {"id": 7}
    with pytest.raises(Fail, match=r"GET a\.example/b: status 422: no such field"):
        answer(422, b"no such\nfield").check()
    with pytest.raises(OutboundRefused, match="status 500") as found:
        answer(500).check()
    assert (found.value.status, found.value.code) == (500, "OUTBOUND_REFUSED")
    with pytest.raises(OutboundRefused, match="cannot be read"):
        answer(200, b"<html>").json()
    with pytest.raises(OutboundRefused, match="cannot be read"):
        answer(200, b'{"id": 7}').json(list[int])


async def test_a_final_refusal_ends_the_job(desk: Desk) -> None:
    """It is a dead letter at once, with the reason of the service."""
    crm = client(Recorder(404), Time())

    async def handler(ctx: Context) -> None:
        (await crm.get(ctx, "/contacts/7")).check()

    job = await desk.run(handler, max_attempts=5)

    assert (job.state, job.reason, job.attempt) == (State.FAILED, Reason.PERMANENT, 1)


async def test_a_busy_service_lowers_the_limit_of_the_group(desk: Desk) -> None:
    """One slot for each job that is told to wait, for all workers, which ends by itself."""
    crm = client(Recorder((429, "5"), 200, (429, "600")), Time(), lower=True)
    group = desk.app.tenant("acme").group("crm")
    held: list[list[str]] = []

    async def handler(ctx: Context) -> None:
        await crm.post(ctx, "/a")
        held.append([slot.note for slot in await group.slots()])

    job_type = desk.app.job(name="grouped")(handler)
    acme = desk.app.tenant("acme")
    await group.set(max_running=2)
    ids = [(await acme.enqueue(job_type(), group="crm")).id for _ in range(2)]
    await drain(desk.app)

    assert held == [["a service asked for a pause"]]
    assert [(await acme.get(id)).state for id in ids] == [State.COMPLETED, State.RETRYING]
    assert len(await group.slots()) == 2
    desk.clock.advance(6)
    assert len(await group.slots()) == 1
    desk.clock.advance(600)
    assert await group.slots() == []


async def test_a_job_without_a_group_lowers_nothing(desk: Desk) -> None:
    """There is no limit that is its own."""
    job = await posted(desk, client(Recorder(429), Time(), lower=True))

    assert job.state is State.COMPLETED
