"""Deliveries to a real receiver: that it works, fails, stalls, asks for time, or wants no more."""

from __future__ import annotations

import logging

import pytest
from tests.outbound.service import NEVER, RESET
from tests.webhooks.conftest import SECRET, Desk

from holdfast import Context
from holdfast.core.job import Reason, State
from holdfast.store import Put
from holdfast.testing import drain
from holdfast.webhooks import verify
from holdfast.webhooks.definition import SECRET_PREFIX

OTHER = "whsec_another-of-the-tests"


async def test_a_delivery_is_sent_once_and_signed(desk: Desk) -> None:
    """With headers by which the receiver knows it again."""
    hook = await desk.hook(headers={"Authorization": "Bearer of-mine"})
    await desk.enqueue()
    await desk.deliver()
    await desk.later()

    [seen] = desk.seen
    found = verify(SECRET, seen.headers, seen.body, now=1000.0)
    assert found.event["kind"] == "enqueued"
    assert found.id == seen.key == seen.headers["holdfast-delivery"]
    assert (found.attempt, seen.method, seen.path) == (1, "POST", "/in")
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["authorization"] == "Bearer of-mine"
    [job] = await desk.deliveries(hook)
    assert (job.state, job.id) == (State.COMPLETED, found.id)


async def test_payload_and_result_are_sent_where_they_are_asked_for(desk: Desk) -> None:
    """As the job has them when the delivery runs."""
    await desk.hook(kinds=["completed"], include=["payload", "result"])
    await desk.app.tenant("acme").enqueue(desk.send(to="bob"))
    await desk.app.tenant("acme").enqueue(desk.send(to="x" * 70_000))
    await desk.app.tenant("acme").enqueue(desk.send(to="gone"), keep=0)
    await _run_all(desk)

    events = [verify(SECRET, one.headers, one.body, now=1000.0).event for one in desk.seen]
    assert (events[0]["payload"], events[0]["result"]) == ({"to": "bob"}, "sent to bob")
    assert events[1]["left_out"] == ["payload", "result"]
    assert events[2]["left_out"] == ["payload", "result"]
    assert all(len(one.body) < 1000 for one in desk.seen)


async def test_a_delivery_is_tried_again_until_it_works(desk: Desk) -> None:
    """Whatever the receiver does: the id stays, the attempt grows, and each is signed anew."""
    hook = await desk.hook()
    desk.receiver.plan = [500, 404, 301, RESET, 200]
    await desk.enqueue()
    await desk.deliver()
    for _ in range(5):
        await desk.later()

    assert [one.headers["holdfast-attempt"] for one in desk.seen] == ["1", "2", "3", "4", "5"]
    assert len({one.key for one in desk.seen}) == 1
    assert len({one.headers["holdfast-signature"] for one in desk.seen}) == 5
    assert len(desk.receiver.objects) == 1
    [job] = await desk.deliveries(hook)
    assert job.state is State.COMPLETED
    assert (await hook.status()).health is None


async def test_the_last_failure_is_a_dead_letter_that_can_be_replayed(desk: Desk) -> None:
    """With the status, and nothing of the answer's body or of the URL's path and query."""
    hook = await desk.hook(attempts=2, url=f"{desk.receiver.url}/token-of-mine?key=of-mine")
    desk.receiver.body = b"secret of the intranet"
    desk.receiver.plan = [500, 500]
    await desk.enqueue()
    await desk.deliver()
    await desk.later()

    [job] = await desk.deliveries(hook, State.FAILED)
    assert (job.reason, job.attempt) == (Reason.MAX_ATTEMPTS, 2)
    assert "answered 500" in str(job.error)
    journal = await desk.app.tenant("acme").journal(job.id)
    told = str(job.error) + "".join(journal.log) + repr((await hook.status()).health)
    assert "of-mine" not in told
    assert "intranet" not in told
    await desk.app.tenant("acme").replay(job.id)
    await desk.later()
    assert {one.key for one in desk.seen} == {job.id}
    assert len(desk.seen) == 3


async def test_a_receiver_that_asks_for_time_gets_it(desk: Desk) -> None:
    """Retry-After of 429 and 503, beyond what the policy of the job says."""
    hook = await desk.hook()
    desk.receiver.plan = [(429, {"Retry-After": "7200"}), (503, {"Retry-After": "7200"})]
    await desk.enqueue()
    await desk.deliver()
    await desk.later(7100)
    assert len(desk.seen) == 1
    await desk.later(200)
    await desk.later(7100)
    assert len(desk.seen) == 2
    await desk.later(200)

    [job] = await desk.deliveries(hook)
    assert (job.state, len(desk.seen)) == (State.COMPLETED, 3)


async def test_a_receiver_that_stalls_holds_a_worker_for_one_time_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the policy of the job goes on."""
    monkeypatch.setattr("holdfast.webhooks.deliver.TIMEOUT_S", 0.1)
    hook = await desk.hook()
    desk.receiver.plan = [NEVER]
    await desk.enqueue()

    await desk.deliver()
    [job] = await desk.deliveries(hook)
    assert (job.state, len(desk.seen)) == (State.RETRYING, 1)

    await desk.later()
    [job] = await desk.deliveries(hook)
    assert job.state is State.COMPLETED


async def test_a_huge_answer_is_not_read(desk: Desk) -> None:
    """Its status is enough."""
    hook = await desk.hook()
    desk.receiver.body = b"x" * (64 * 1024 * 1024)
    await desk.enqueue()

    await desk.deliver()

    [job] = await desk.deliveries(hook)
    assert job.state is State.COMPLETED


async def test_a_receiver_that_is_gone_pauses_its_webhook(desk: Desk) -> None:
    """410: with the reason. The delivery is a dead letter, and later ones wait."""
    hook = await desk.hook()
    desk.receiver.plan = [410]
    await desk.enqueue()
    await desk.deliver()
    await desk.enqueue()

    paused = (await hook.get()).paused
    assert paused is not None
    assert "answered 410" in paused.reason
    await desk.later()
    assert len(desk.seen) == 1
    [job] = await desk.deliveries(hook)
    assert (job.state, job.reason) == (State.FAILED, Reason.PERMANENT)
    await hook.resume("ann")
    await desk.upkeep.turn()
    await desk.deliver()
    assert len(desk.seen) == 2


async def test_redirects_are_not_followed(desk: Desk) -> None:
    """The place they lead to was not checked."""
    hook = await desk.hook()
    desk.receiver.plan = [(307, {"Location": f"{desk.receiver.url}/elsewhere"})]
    await desk.enqueue()

    await desk.deliver()

    assert [one.path for one in desk.seen] == ["/in"]
    assert [job.state for job in await desk.deliveries(hook)] == [State.RETRYING]


# -- circuits --------------------------------------------------------------------------------------


async def test_a_dead_host_is_left_alone_at_no_cost_of_attempts(desk: Desk) -> None:
    """Ten failures in a row open its circuit; the next delivery that may go tries it."""
    hook = await desk.hook()
    desk.receiver.plan = [503] * 10
    await desk.enqueue(15)

    await desk.deliver()

    assert len(desk.seen) == 10
    jobs = await desk.deliveries(hook)
    assert sorted(job.attempt for job in jobs) == [0] * 5 + [1] * 10
    for _ in range(30):
        await desk.later(100)
    assert {job.state for job in await desk.deliveries(hook)} == {State.COMPLETED}
    assert len(desk.receiver.objects) == 15


async def test_a_circuit_is_of_one_tenant(desk: Desk) -> None:
    """P19: many tenants have receivers at one provider; one that fails stops no other."""
    acme, globex = await desk.hook(), await desk.hook(tenant="globex")
    desk.receiver.plan = [503] * 10
    await desk.enqueue(12)
    await desk.deliver()
    assert len(desk.seen) == 10

    await desk.enqueue(3, tenant="globex")
    await desk.deliver()

    assert {job.state for job in await desk.deliveries(globex)} == {State.COMPLETED}
    assert State.COMPLETED not in {job.state for job in await desk.deliveries(acme)}


# -- secrets and changes ---------------------------------------------------------------------------


async def test_a_rotation_signs_with_both_secrets_for_a_while(desk: Desk) -> None:
    """Then with the new one alone."""
    hook = await desk.hook()
    rotated = await hook.rotate(secret=OTHER, keep=3600)
    assert rotated.secret == OTHER
    await desk.enqueue()
    await desk.deliver()
    await desk.later(3700)
    await desk.enqueue()
    await desk.deliver()

    first, second = desk.seen
    assert first.headers["holdfast-signature"].count("v1=") == 2
    for secret in (SECRET, OTHER):
        assert verify(secret, first.headers, first.body, now=1000.0).attempt == 1
    assert second.headers["holdfast-signature"].count("v1=") == 1
    assert verify(OTHER, second.headers, second.body, now=4700.0).attempt == 1


async def test_a_leaked_secret_ends_at_once_if_it_is_told_to(desk: Desk) -> None:
    """With keep=0."""
    hook = await desk.hook()
    await hook.rotate(secret=OTHER, keep=0)
    await desk.enqueue()
    await desk.deliver()

    assert desk.seen[0].headers["holdfast-signature"].count("v1=") == 1
    assert verify(OTHER, desk.seen[0].headers, desk.seen[0].body, now=1000.0)


async def test_a_ping_says_whether_a_receiver_works(desk: Desk) -> None:
    """It is a delivery as any other, at once."""
    hook = await desk.hook()
    answer = await hook.test()
    await desk.deliver()

    [seen] = desk.seen
    assert verify(SECRET, seen.headers, seen.body, now=1000.0).event["kind"] == "ping"
    assert seen.key == answer.id


async def test_deliveries_of_a_webhook_that_was_replaced_are_not_sent(desk: Desk) -> None:
    """They were for the receiver before."""
    hook = await desk.hook()
    await desk.enqueue()
    [job] = await desk.deliveries(hook)
    await hook.delete()
    await desk.hook()

    # A run that had begun before.
    ended = await desk.app.delivering.run(Context(job), "billing", "another", {"id": job.id})

    assert "not sent" in ended
    assert desk.seen == []


async def test_no_log_shows_a_secret(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """At whatever level, and whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    hook = await desk.hook(headers={"x-key": "header-of-mine"}, attempts=4)
    desk.receiver.plan = [500, RESET, 302, 410]
    await desk.enqueue()
    await desk.deliver()
    for _ in range(4):
        await desk.later()
    [setting] = await desk.app.store.settings(under=SECRET_PREFIX)
    await desk.app.store.settings([Put(setting.name, b"{broken of-mine", setting.version)])
    await hook.resume("ann")
    await desk.enqueue()
    await desk.deliver()

    errors = " ".join(str(job.error) for job in await desk.deliveries(hook))
    assert "cannot be read" in errors
    for secret in (SECRET, "of-mine"):
        assert secret not in caplog.text + errors


async def _run_all(desk: Desk) -> None:
    await drain(desk.app, queues=["mail"])
    await desk.upkeep.turn()
    await desk.deliver()
