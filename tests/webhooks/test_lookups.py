"""Names: what is checked is what is called, and look-ups of one tenant hold up no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.webhooks.conftest import Desk

from holdfast.config import Config
from holdfast.core.edge_bounds import WEBHOOK_LOOKUPS_OF_TENANT
from holdfast.core.errors import InvalidInput
from holdfast.core.job import JobRecord, State
from holdfast.outbound.tries import NotSent
from holdfast.webhooks.deliver import Delivering
from holdfast.webhooks.lookup import Lookup

NAME = "receiver.example"


class Names:
    """A name server that answers by a script; its last answer stays."""

    def __init__(self, *script: list[str] | OSError) -> None:
        self.script = list(script)
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, OSError):
            raise step
        return step


def named(desk: Desk) -> str:
    """The URL of the receiver, with a name as its host."""
    return desk.receiver.url.replace("127.0.0.1", NAME) + "/in"


async def one(desk: Desk, names: Names) -> JobRecord:
    """The delivery to a name after its first attempt."""
    desk.resolve_by(names)
    hook = await desk.hook(url=named(desk))
    await desk.enqueue()
    await desk.deliver()
    [job] = await desk.deliveries(hook)
    return job


async def test_a_name_is_looked_up_once_for_each_attempt(desk: Desk) -> None:
    """And the request goes to that answer, with the name in it."""
    names = Names(["127.0.0.1"])

    job = await one(desk, names)

    assert job.state is State.COMPLETED
    assert len(names.asked) == 1
    assert desk.seen[0].headers["host"].startswith(NAME)


async def test_a_name_that_changes_after_the_check_changes_nothing(desk: Desk) -> None:
    """DNS rebinding: the first answer is allowed, the next one is not. What is called is what was
    checked, so the second answer is never used without a check of its own.
    """
    names = Names(["127.0.0.1"], ["127.0.0.2"])

    job = await one(desk, names)
    assert (job.state, len(desk.seen), len(names.asked)) == (State.COMPLETED, 1, 1)
    await desk.enqueue()
    await desk.deliver()

    assert (len(desk.seen), len(names.asked)) == (1, 2)


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.2"], ["127.0.0.1", "10.0.0.1"], ["169.254.169.254"], ["::1"], ["fe80::1%2"], ["x"]],
    ids=str,
)
async def test_a_name_that_leads_inside_is_not_called(desk: Desk, addresses: list[str]) -> None:
    """It fails as a receiver that is away does, and tells nothing about the network."""
    job = await one(desk, Names(addresses))

    assert desk.seen == []
    assert job.state is State.RETRYING
    assert "is no public address" in str(job.error)
    assert "." not in str(job.error).replace(NAME, "")  # No address is in it.


async def test_a_name_that_is_not_found_is_tried_again(desk: Desk) -> None:
    """The name server may be away."""
    job = await one(desk, Names(OSError("no"), ["127.0.0.1"]))
    assert job.state is State.RETRYING
    assert "name was not found" in str(job.error)

    await desk.later()

    assert len(desk.seen) == 1


async def test_a_private_address_is_refused_when_the_webhook_is_set(desk: Desk) -> None:
    """Whoever sets it learns it at once."""
    hook = await desk.hook()

    for url in ("http://10.0.0.1/", "http://[::1]/", "http://127.0.0.2/"):
        with pytest.raises(InvalidInput, match="no public address"):
            await hook.set(url=url)


async def test_an_address_is_checked_again_when_it_is_called(desk: Desk) -> None:
    """The platform may allow less than it did."""
    hook = await desk.hook()
    await desk.enqueue()
    strict = Config.of(webhooks_allow=())
    vars(desk.app)["delivering"] = Delivering(desk.app.store, strict)

    await desk.deliver()

    assert desk.seen == []
    [job] = await desk.deliveries(hook)
    assert "no public address" in str(job.error)


async def test_the_look_ups_of_a_tenant_are_bounded() -> None:
    """P19: a slow name server of one tenant leaves threads for the others."""
    going, started = threading.Event(), threading.Semaphore(0)

    def slow(host: str, port: int) -> list[str]:
        if host == "slow.example":
            started.release()
            going.wait(30)
        return ["127.0.0.1"]

    lookup = Lookup(slow)
    asked = [
        asyncio.ensure_future(lookup.addresses("acme", "slow.example", 80))
        for _ in range(WEBHOOK_LOOKUPS_OF_TENANT)
    ]
    await _until(lambda: started.acquire(timeout=10), WEBHOOK_LOOKUPS_OF_TENANT)

    with pytest.raises(NotSent, match="too many"):
        await lookup.addresses("acme", "slow.example", 80)
    assert await lookup.addresses("globex", "fast.example", 80) == ["127.0.0.1"]
    for one_asked in asked[1:]:
        one_asked.cancel()
    with pytest.raises(NotSent, match="too many"):  # Their threads are still busy.
        await lookup.addresses("acme", "slow.example", 80)
    going.set()
    assert await asked[0] == ["127.0.0.1"]


async def _until(acquire: Callable[[], bool], times: int) -> None:
    for _ in range(times):
        assert await asyncio.to_thread(acquire)
