"""Codecs: payloads come back as they went, in any process and after any upgrade of their type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, Context, Job, Reason, State
from holdfast.core.codec import OBJECT, Codecs
from holdfast.core.errors import CodecNotFound, ConfigError, DecodeError, InvalidPayload
from holdfast.core.job import Envelope
from holdfast.testing import ManualClock, drain


class Point(Job):
    x: int
    y: int = 0

    async def run(self, ctx: Context) -> list[int]:
        return [self.x, self.y]


class Reversed:
    """JSON, backwards: a codec of one's own."""

    id = "reversed"

    def __init__(self) -> None:
        self._json = Codecs().get("json")

    def encode(self, value: Any) -> bytes:
        return self._json.encode(value)[::-1]

    def decode(self, body: bytes, type: Any) -> Any:
        return self._json.decode(body[::-1], type)


def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_payload_comes_back_as_its_type(codec: str) -> None:
    """Checked against the type on the way."""
    codecs = Codecs()

    sealed = codecs.seal("Point", 1, codec, Point(x=1, y=2))

    assert isinstance(sealed.body, bytes)
    assert codecs.unseal(sealed, Point, 1, {}) == Point(x=1, y=2)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b'{"x": 1', b'{"x": "one"}', b"[]"])
def test_corrupt_bytes_are_a_decode_error_that_names_the_type(codec: str, body: bytes) -> None:
    """Whatever the codec's own library raises."""
    with pytest.raises(DecodeError, match="'Point'"):
        Codecs().unseal(Envelope("Point", codec, 1, body), Point, 1, {})


def test_a_corrupt_result_is_a_decode_error_too() -> None:
    """For those who wait for it."""
    with pytest.raises(DecodeError):
        Codecs().unseal_result("json", b"{")


def test_an_unknown_codec_is_named_with_those_that_are_known() -> None:
    """At the app's settings and at the job type already."""
    with pytest.raises(CodecNotFound, match=r"'cbor'.*json, msgpack"):
        App("memory://", codec="cbor")
    with pytest.raises(CodecNotFound, match="'cbor'"):
        App("memory://").job(codec="cbor")(Point)


def test_pickle_works_only_when_switched_on() -> None:
    """Reading it runs code."""
    with pytest.raises(CodecNotFound, match="switched on by name"):
        Codecs().get("pickle")

    codecs = Codecs(pickle=True)
    sealed = codecs.seal("Point", 1, "pickle", Point(x=1))

    assert codecs.unseal(sealed, Point, 1, {}) == Point(x=1)
    with pytest.raises(CodecNotFound):
        Codecs().unseal(sealed, Point, 1, {})


def test_a_codec_id_is_replaced_only_when_told_so() -> None:
    """Stored payloads name it."""
    codecs = Codecs()
    codecs.register(Reversed())

    with pytest.raises(ConfigError, match="'reversed' is taken"):
        codecs.register(Reversed())
    codecs.register(Reversed(), replace=True)

    sealed = codecs.seal("Point", 1, "reversed", Point(x=1))
    assert sealed.body.endswith(b"{")
    assert codecs.unseal(sealed, Point, 1, {}) == Point(x=1)


def test_nobody_may_register_the_object_codec() -> None:
    """Its id means that there are no bytes."""

    class Object(Reversed):
        id = OBJECT

    with pytest.raises(ConfigError):
        Codecs().register(Object(), replace=True)


def test_what_cannot_be_written_is_refused_when_sealed() -> None:
    """Before it reaches a store."""
    with pytest.raises(InvalidPayload, match="'blob'"):
        Codecs().seal("blob", 1, "json", {"value": object()})


UPGRADES = {
    1: lambda plain: {"x": plain["left"]},
    2: lambda plain: {**plain, "y": 7},
}


@pytest.mark.parametrize(
    ("version", "body", "point"),
    [
        (1, b'{"left": 1}', Point(x=1, y=7)),
        (2, b'{"x": 2}', Point(x=2, y=7)),
        (3, b'{"x": 3, "y": 4}', Point(x=3, y=4)),
    ],
)
def test_older_payloads_pass_through_each_upgrade(version: int, body: bytes, point: Point) -> None:
    """One version at a time, up to the present one."""
    envelope = Envelope("Point", "json", version, body)

    assert Codecs().unseal(envelope, Point, 3, UPGRADES) == point


def test_a_missing_or_failing_upgrade_is_a_decode_error_that_says_so() -> None:
    """The job goes to the dead letters with these words."""
    envelope = Envelope("Point", "json", 1, b"{}")

    with pytest.raises(DecodeError, match="no upgrade from version 1"):
        Codecs().unseal(envelope, Point, 3, {})
    with pytest.raises(DecodeError, match="left"):
        Codecs().unseal(envelope, Point, 3, UPGRADES)


def test_a_hole_between_upgrades_is_refused_at_registration() -> None:
    """Nobody should find out in production."""
    with pytest.raises(ConfigError, match="no upgrade from version 2"):
        App("memory://").job(version=4, upgrades={1: dict, 3: dict})(Point)


async def test_a_payload_enqueued_by_an_old_release_runs_in_the_new_one(tmp_path: Path) -> None:
    """v1 bytes in the file, v3 code reads them."""
    old, new = App(sqlite(tmp_path)), App(sqlite(tmp_path))

    @old.job(name="Point")
    async def point(ctx: Context, left: int) -> None: ...

    new.job(version=3, upgrades=UPGRADES)(Point)
    async with old:
        job = await old.tenant("acme").enqueue(point(left=1))

    await drain(new)

    async with new:
        assert await new.tenant("acme").wait(job.id) == [1, 7]


async def test_a_newer_payload_is_left_for_a_newer_worker(tmp_path: Path) -> None:
    """A miss with its attempt given back, never a dead letter."""
    clock = ManualClock()
    old, new = App(sqlite(tmp_path), clock=clock), App(sqlite(tmp_path), clock=clock)
    new.job(version=2)(Point)

    @old.job(name="Point")
    async def point(ctx: Context) -> None: ...

    async with new:
        job = await new.tenant("acme").enqueue(Point(x=1))
        await drain(old)
        record = await new.tenant("acme").get(job.id)
        assert (record.state, record.attempt, record.misses) == (State.SCHEDULED, 0, 1)

        clock.advance(10)
        await drain(new)
        assert await new.tenant("acme").wait(job.id) == [1, 0]


async def test_bytes_that_cannot_be_read_are_dead_lettered_as_decode(tmp_path: Path) -> None:
    """The type changed without a version: the words of the error say what did not fit."""
    old, new = App(sqlite(tmp_path)), App(sqlite(tmp_path))
    new.job()(Point)

    @old.job(name="Point")
    async def point(ctx: Context, left: int) -> None: ...

    async with old, new:
        job = await old.tenant("acme").enqueue(point(left=1))
        await drain(new)
        record = await new.tenant("acme").get(job.id)

    assert (record.state, record.reason) == (State.FAILED, Reason.DECODE)
    assert "'Point'" in (record.error or "")


async def test_the_memory_store_hands_the_very_object_over() -> None:
    """No encoding, and no copy of what nobody can change: identity."""
    app = App("memory://")
    seen: list[Job] = []

    @app.job()
    class Keep(Job):
        items: tuple[int, ...]

        async def run(self, ctx: Context) -> Any:
            seen.append(self)
            return self

    job = Keep(items=(1, 2))
    async with app:
        made = await app.tenant("acme").enqueue(job)
        await drain(app)
        result = await app.tenant("acme").wait(made.id)

    assert seen[0] is job
    assert result is job


def test_bytes_are_kept_as_they_are_and_read_by_a_job_with_one_argument() -> None:
    """What callers over HTTP send in base64."""
    codec = Codecs().get("bytes")

    class Upload(msgspec.Struct):
        body: bytes

    assert codec.encode(b"\x00\xff") == codec.encode(Upload(b"\x00\xff")) == b"\x00\xff"
    assert codec.decode(b"\x00\xff", Any) == b"\x00\xff"
    assert codec.decode(b"\x00\xff", Upload) == Upload(b"\x00\xff")
