"""Patience: what is sent again, what is not, and when a failing service is left alone."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from holdfast.breaker import Breaker
from holdfast.core.errors import (
    ConfigError,
    HoldfastError,
    InvalidInput,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from holdfast.stores.remote import wire
from holdfast.stores.remote.client import Client, Sent, packed
from holdfast.stores.remote.errors import Answer, NoAnswer, NotSent
from holdfast.stores.remote.options import Options

DONE = Answer(status=200, media=wire.MEDIA, body=wire.encode([]))


def refused(error: HoldfastError, status: int = 503, after: float | None = None) -> Answer:
    """As the service tells an error of the tree."""
    body = wire.encode(wire.error_out(error))
    return Answer(status=status, media=wire.MEDIA, body=body, retry_after_s=after)


def problem(code: str, status: int, after: float | None = None) -> Answer:
    """As the service tells an error of its own."""
    body = msgspec.json.encode({"code": code, "detail": "in words", "status": status})
    media = "application/problem+json"
    return Answer(status=status, media=media, body=body, retry_after_s=after)


class Script:
    """A transport that answers as written, and then always as in the last line."""

    def __init__(self, *lines: Answer | Exception) -> None:
        self._lines = list(lines)
        self.sent: list[Sent] = []

    async def send(self, sent: Sent) -> Answer:
        self.sent.append(sent)
        line = self._lines.pop(0) if len(self._lines) > 1 else self._lines[0]
        if isinstance(line, Exception):
            raise line
        return line

    async def close(self) -> None:
        return


def client(script: Script, **options: float) -> Client:
    return Client(Options(base="http://x", **{"timeout_s": 5.0, **options}), script)  # type: ignore[arg-type]


AWAY = StoreUnavailable(store="sqlite:///x", why="busy")
FAILURES: dict[str, Answer | Exception] = {
    "not sent": NotSent("refused"),
    "no answer": NoAnswer("reset"),
    "store away": refused(AWAY),
    "overloaded": problem("OVERLOADED", 503),
    "too many": problem("RATE_LIMITED", 429),
    "too late": problem("REQUEST_TIMEOUT", 503),
    "gateway": Answer(status=502, media="text/html", body=b"<h1>Bad gateway</h1>"),
}
UNTOUCHED = ("not sent", "overloaded", "too many")


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_verb_that_may_be_repeated_is_sent_again(failure: str) -> None:
    """P15: whether or not the first try was done; a claim is known again by its nonce."""
    verbs: tuple[wire.Verb[Any], ...] = (wire.ENQUEUE, wire.CLAIM)
    for verb in verbs:
        script = Script(FAILURES[failure], FAILURES[failure], DONE)

        assert await client(script).ask(verb, packed(verb, [])) == []
        assert len(script.sent) == 3


@pytest.mark.parametrize("verb", [wire.PUT, wire.CHANGE], ids=lambda one: one.name)
@pytest.mark.parametrize("failure", FAILURES)
async def test_another_verb_is_sent_again_only_if_nothing_was_done(
    failure: str, verb: wire.Verb[object]
) -> None:
    """A second one could not tell what the first has done."""
    done = wire.encode(wire.ChangedPairs([], None) if verb is wire.CHANGE else [])
    script = Script(FAILURES[failure], Answer(status=200, media=wire.MEDIA, body=done))

    if failure in UNTOUCHED:
        await client(script).ask(verb, b"")
        assert len(script.sent) == 2
    else:
        with pytest.raises(StoreUnavailable):
            await client(script).ask(verb, b"")
        assert len(script.sent) == 1


async def test_the_service_is_not_asked_again_before_it_wants_to_be() -> None:
    """Retry-After is kept, where the time-out allows it."""
    script = Script(problem("OVERLOADED", 503, after=0.3), DONE)
    started = time.monotonic()
    await client(script).ask(wire.ACK, b"")
    assert time.monotonic() - started >= 0.3

    late = Script(problem("RATE_LIMITED", 429, after=60), DONE)
    with pytest.raises(StoreUnavailable, match="in words"):
        await client(late).ask(wire.ACK, b"")
    assert len(late.sent) == 1


async def test_a_verb_ends_with_its_time_out() -> None:
    """However often it was tried; and no try gets more than is left."""
    script = Script(NotSent("refused"))
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await client(script, timeout_s=0.3, breaker=1000).ask(wire.ACK, b"")

    assert time.monotonic() - started < 2
    assert len(script.sent) >= 2
    assert all(sent.timeout_s <= 0.3 for sent in script.sent)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refused(InvalidInput(field="limit", why="is 7"), 422), InvalidInput, "limit: is 7"),
        (refused(StoreFull(store="s", why="disk")), StoreFull, "no space left"),
        (problem("UNAUTHENTICATED", 401), StoreUnavailable, "does not hold"),
        (problem("FORBIDDEN", 403), StoreError, "not allowed: in words"),
        (problem("INTERNAL", 500), StoreError, "INTERNAL: in words"),
        (problem("NOT_FOUND", 404), ConfigError, "no Holdfast service"),
        (Answer(status=404, media="text/html", body=b""), ConfigError, "no Holdfast service"),
        (Answer(status=200, media="text/html", body=b"hi"), ConfigError, "no Holdfast service"),
        (Answer(status=200, media=wire.MEDIA, body=b"\xc1"), StoreUnavailable, "cannot be read"),
    ],
)
async def test_what_no_second_try_makes_better_is_told_at_once(
    answer: Answer, kind: type[HoldfastError], words: str
) -> None:
    """As an error of our tree."""
    script = Script(answer)

    with pytest.raises(HoldfastError, match=words) as caught:
        await client(script).ask(wire.ENQUEUE, b"")

    assert type(caught.value) is kind
    assert len(script.sent) == 1


async def test_a_failing_service_is_left_alone_and_tried_again() -> None:
    """Past so many failures calls fail at once; after the rest one trial goes through."""
    script = Script(NoAnswer("reset"))
    asking = client(script, breaker=3, breaker_s=0.2)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="no answer"):
            await asking.ask(wire.PUT, b"")
    with pytest.raises(StoreUnavailable, match="left alone"):
        await asking.ask(wire.CLAIM, b"")
    assert len(script.sent) == 3

    # Under way when it opened: goes on as its trial, within its own time.
    script._lines = [DONE]
    slow = Script(NotSent("refused"), NotSent("refused"), NotSent("refused"), DONE)
    assert await client(slow, breaker=2, breaker_s=0.1).ask(wire.ACK, b"") == []
    assert len(slow.sent) == 4


def test_a_breaker_lets_one_trial_through() -> None:
    """Its success closes it, its failure opens it again; one that never reports is replaced."""
    now = 0.0
    breaker = Breaker(2, 1.0, lambda: now)
    breaker.failed()
    breaker.worked()
    breaker.failed()
    assert breaker.admit() == 0
    breaker.failed()
    assert breaker.admit() == 1.0

    now = 1.0
    assert [breaker.admit(), breaker.admit()] == [0, 1.0]
    breaker.failed()
    now = 1.5
    assert breaker.admit() == 0.5
    now = 2.0
    assert [breaker.admit(), breaker.admit()] == [0, 1.0]
    now = 3.0
    assert breaker.admit() == 0
    breaker.worked()
    assert [breaker.admit(), breaker.admit()] == [0, 0]


async def test_what_cannot_travel_is_the_callers_mistake() -> None:
    """Before anything is sent."""
    for value in (object(), 2**70, "\ud800"):
        with pytest.raises(InvalidInput, match="enqueue: cannot be sent"):
            packed(wire.ENQUEUE, [value])


async def test_a_closed_client_does_not_try_again() -> None:
    """Who closes the store does not wait for its patience."""
    script = Script(NotSent("refused"))
    asking = client(script)
    await asking.close()

    with pytest.raises(StoreUnavailable):
        await asking.ask(wire.ACK, b"")
    assert len(script.sent) == 1
