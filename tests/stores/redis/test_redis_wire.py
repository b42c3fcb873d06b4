"""The connection that scripts go over: answers find their calls, and a lost one is told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis import exceptions
from tests.servers.redis_node import RedisNode

from holdfast.stores.redis.options import parse
from holdfast.stores.redis.wire import Wire

ECHO = "return ARGV[1]"


async def open_wire(node: RedisNode, options: str = "") -> Wire:
    return await Wire.open(parse(f"{node.url}?prefix=w:{options}"), "127.0.0.1", node.port)


@pytest.fixture
async def wire(node: RedisNode) -> AsyncIterator[Wire]:
    wire = await open_wire(node)
    yield wire
    wire.close()


async def test_calls_at_once_each_get_their_own_answer(wire: Wire) -> None:
    """They share the connection; answers come in the order of the calls."""
    texts = [f"text {n}".encode() * (n + 1) for n in range(200)]

    assert await asyncio.gather(*(wire.call("EVAL", ECHO, 0, each) for each in texts)) == texts


async def test_a_call_given_up_leaves_the_others_in_step(wire: Wire) -> None:
    """Its answer is nobody else's."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await wire.call("EVAL", ECHO, 0, "nobody's")

    assert await wire.call("EVAL", ECHO, 0, "mine") == b"mine"


async def test_an_error_is_its_own_call_s(wire: Wire) -> None:
    """As redis-py names it; the connection goes on."""
    calls = wire.call("EVALSHA", "0" * 40, 0), wire.call("EVAL", ECHO, 0, "x")
    told: Any = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(told[0], exceptions.NoScriptError)
    assert told[1] == b"x"


async def test_a_silent_server_is_told_in_time(own_node: RedisNode) -> None:
    """P15: all that waits fails, and the wire is lost: answers that come later are nobody's."""
    wire = await open_wire(own_node, "&timeout_s=0.2")
    assert own_node.pid is not None
    os.kill(own_node.pid, signal.SIGSTOP)
    try:
        told = await asyncio.gather(*(wire.call("PING") for _ in range(3)), return_exceptions=True)
    finally:
        os.kill(own_node.pid, signal.SIGCONT)

    assert [type(each) for each in told] == [exceptions.TimeoutError] * 3
    assert wire.lost
    with pytest.raises(exceptions.ConnectionError):
        await wire.call("PING")


async def test_a_server_that_goes_fails_what_waits(own_node: RedisNode) -> None:
    """P15: at once, not after the time-out."""
    wire = await open_wire(own_node)
    assert own_node.pid is not None
    os.kill(own_node.pid, signal.SIGSTOP)
    waiting = asyncio.ensure_future(wire.call("PING"))
    await asyncio.to_thread(own_node.kill)

    with pytest.raises(exceptions.ConnectionError):
        await waiting
    assert wire.lost


async def test_a_patient_call_waits_for_a_long_answer(wire: Wire, node: RedisNode) -> None:
    """It is sent when the long answer is there, and others before: so it does not delay it."""
    node.ask("SET", "held", "0")
    long = wire.call("EVAL", "return string.rep('x', 200000)", 0, long=True)
    patient = wire.call("EVAL", "return redis.call('INCR', 'held')", 0, patient=True)
    other = wire.call("GET", "held")

    assert await other == b"0"
    assert len(await long) == 200_000
    assert await patient == 1
    assert await wire.call("EVAL", ECHO, 0, "x", patient=True) == b"x"


async def test_a_patient_call_that_was_given_up_is_not_made(wire: Wire, node: RedisNode) -> None:
    """Others that were held are, in their order."""
    node.ask("SET", "held", "0")
    long = wire.call("EVAL", ECHO, 0, "x", long=True)
    gone, *kept = (
        wire.call("EVAL", "return redis.call('INCR', 'held')", 0, patient=True) for _ in range(3)
    )
    gone.cancel()

    assert await long == b"x"
    assert await asyncio.gather(*kept) == [1, 2]


async def test_a_wire_that_is_lost_fails_what_it_held(wire: Wire) -> None:
    """P15: as what was sent."""
    calls = wire.call("EVAL", ECHO, 0, "x", long=True), wire.call("PING", patient=True)
    wire.close()

    told = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in told] == [exceptions.ConnectionError] * 2
