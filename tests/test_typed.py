"""Typed jobs: what can be said of a job, and that wrong words fail at the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from holdfast import App, Context, InvalidInput, Job
from holdfast.core.codec import Codecs
from holdfast.core.errors import (
    ConfigError,
    InvalidPayload,
    JobTypeAlreadyRegistered,
    JobTypeNotRegistered,
)
from holdfast.typed import Planned, Style


class Color(Enum):
    RED = "red"


class Address(msgspec.Struct):
    street: str


class Person(BaseModel):
    name: str
    age: int = 1


class Order(Job):
    person: Person
    address: Address
    at: datetime
    color: Color
    notes: tuple[str, ...] = ()

    def run(self, ctx: Context) -> str:
        return f"{self.person.name} {self.address.street} {self.at:%Y} {self.color.value}"


def an_order(**changes: Any) -> Order:
    fields: dict[str, Any] = {
        "person": Person(name="Ann"),
        "address": Address("Elm"),
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "color": Color.RED,
    }
    return Order(**(fields | changes))


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.fixture
def send(app: App) -> Callable[..., Job]:
    @app.job()
    async def send(ctx: Context, to: str, subject: str = "hi", *, copies: int = 1) -> None:
        """Sends."""

    return send


def test_calling_a_job_function_makes_a_job_and_does_not_run_it(app: App) -> None:
    """The body would raise; the call only names the arguments."""

    @app.job()
    def explode(ctx: Context, size: int) -> None:
        raise AssertionError

    job = explode(size=3)

    assert isinstance(job, Job)
    assert msgspec.structs.asdict(job) == {"size": 3}


def test_defaults_and_positional_arguments_fill_the_fields(send: Callable[..., Job]) -> None:
    """As in a plain call of the function."""
    job = send("a@b.c", copies=2)

    assert msgspec.structs.asdict(job) == {"to": "a@b.c", "subject": "hi", "copies": 2}


def test_a_job_function_keeps_its_name_and_its_words(send: Any) -> None:
    """Documentation and tracebacks still know it."""
    assert (send.__name__, send.__doc__) == ("send", "Sends.")


@pytest.mark.parametrize(
    ("args", "kwargs", "word"),
    [
        ((), {}, "'to'"),
        ((1,), {}, "$.to"),
        (("a",), {"subject": None}, "$.subject"),
        (("a",), {"subjekt": "x"}, "'subjekt'"),
        (("a",), {"to": "b"}, "'to' was given twice"),
        (("a", "b", 1, 2), {}, "takes 3 positional arguments, 4 were given"),
    ],
)
def test_bad_arguments_fail_at_the_call_and_name_the_field(
    send: Callable[..., Job], args: tuple[Any, ...], kwargs: dict[str, Any], word: str
) -> None:
    """Missing, of the wrong type, unknown, doubled, too many."""
    with pytest.raises(InvalidPayload) as raised:
        send(*args, **kwargs)

    assert word in str(raised.value)
    assert "'send'" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"person": {"name": "Ann", "age": "old"}}, "$.person"),
        ({"address": {"street": 5}}, "$.address.street"),
        ({"at": "yesterday"}, "$.at"),
        ({"color": "green"}, "$.color"),
        ({"notes": ["a", 1]}, "$.notes[1]"),
    ],
)
def test_rich_fields_are_checked_at_the_call(change: dict[str, Any], word: str) -> None:
    """Models, structs, instants, enums and lists are looked into; the path names the spot."""
    with pytest.raises(InvalidPayload) as raised:
        an_order(**change)

    assert word in str(raised.value)


def test_plain_data_becomes_the_declared_types() -> None:
    """What came from JSON fits as it is."""
    job = an_order(
        person={"name": "Ann"}, address={"street": "Elm"}, at="2026-01-02T00:00:00Z", color="red"
    )

    assert job == an_order()


@pytest.mark.parametrize("codec", ["json", "msgpack", "pickle"])
def test_rich_fields_survive_every_codec(codec: str) -> None:
    """A pydantic model, a nested struct, an instant and an enum come back equal."""
    codecs = Codecs(pickle=True)
    job = an_order(notes=("x",))

    back = codecs.unseal(codecs.seal("Order", 1, codec, job), Order, 1, {})

    assert back == job


async def test_a_class_form_runs_with_its_fields(app: App) -> None:
    """`self` has what the call said."""
    app.job()(Order)

    assert await app.run_now(an_order()) == "Ann Elm 2026 red"


def test_a_job_cannot_be_changed_once_made() -> None:
    """It may be enqueued twice and must mean the same."""
    job = an_order()

    with pytest.raises(AttributeError):
        job.color = Color.RED  # type: ignore[misc]


def test_a_type_name_is_taken_once(app: App, send: Any) -> None:
    """The second registration names the first one's home."""
    with pytest.raises(JobTypeAlreadyRegistered) as raised:
        app.job(name="send")(Order)

    assert "test_typed:" in str(raised.value)


def test_a_class_without_run_is_refused(app: App) -> None:
    """Nothing could be done with its jobs."""

    class Idle(Job):
        size: int

    with pytest.raises(ConfigError, match="Idle"):
        app.job()(Idle)


def test_a_class_that_is_no_job_is_refused(app: App) -> None:
    """It has no payload."""

    class Stranger:
        def run(self, ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="must derive from"):
        app.job()(Stranger)  # type: ignore[type-var]


def no_parameters() -> None: ...
def wrong_first(size: int) -> None: ...
def many(ctx: Context, *sizes: int) -> None: ...
def named(ctx: Context, **sizes: int) -> None: ...
def only_positional(ctx: Context, size: int, /) -> None: ...
def taken(ctx: Context, run: int) -> None: ...
def taken_too(ctx: Context, with_options: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (no_parameters, "ctx: Context"),
        (wrong_first, "ctx: Context"),
        (many, "'sizes'"),
        (named, "'sizes'"),
        (only_positional, "cannot be stored"),
        (taken, "'run'"),
        (taken_too, "'with_options'"),
    ],
)
def test_a_function_that_cannot_be_stored_is_refused_at_once(
    app: App, function: Any, word: str
) -> None:
    """At the decorator, naming the function and the parameter."""
    with pytest.raises(ConfigError) as raised:
        app.job()(function)

    assert word in str(raised.value)
    assert function.__name__ in str(raised.value)


def test_where_a_handler_runs_follows_from_its_kind(app: App) -> None:
    """Coroutines on the loop, plain functions in threads, cpu=True in processes."""

    @app.job()
    async def on_loop(ctx: Context) -> None: ...
    @app.job()
    def in_thread(ctx: Context) -> None: ...
    @app.job(cpu=True)
    def in_process(ctx: Context) -> None: ...

    styles = [app.registry.of(made()).style for made in (on_loop, in_thread, in_process)]
    assert styles == [Style.LOOP, Style.THREAD, Style.PROCESS]


def test_an_async_handler_cannot_ask_for_a_process(app: App) -> None:
    """A loop in a child is not what cpu=True means."""

    async def wish(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="cpu"):
        app.job(cpu=True)(wish)


@dataclass
class Parcel:
    grams: int


def test_objects_inside_arguments_are_checked_too(app: App) -> None:
    """Their own constructors trust what they are given; the job does not."""

    @app.job()
    async def ship(ctx: Context, to: Address, parcels: list[Parcel]) -> None: ...

    assert ship(Address("A"), [Parcel(1)]) == ship(to=Address("A"), parcels=[Parcel(1)])
    with pytest.raises(InvalidPayload, match=r"\$.to.street"):
        ship(to=Address(7), parcels=[])  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload, match=r"\$.parcels\[1\].grams"):
        ship(to=Address("A"), parcels=[Parcel(1), Parcel("heavy")])  # type: ignore[arg-type]


def test_with_options_carries_them_beside_the_job() -> None:
    """For enqueue_many, where each item may differ."""
    job = an_order()

    assert job.with_options(priority=3) == Planned(job, {"priority": 3})


async def test_an_unknown_option_is_refused_with_the_nearest_name(app: App, send: Any) -> None:
    """At the decorator, in with_options and at the enqueue."""
    async with app:
        acme = app.tenant("acme")
        with pytest.raises(InvalidInput, match="Did you mean 'priority'"):
            await acme.enqueue(send("a"), priorty=1)  # type: ignore[call-arg]
        with pytest.raises(InvalidInput, match="Did you mean 'delay'"):
            await acme.enqueue(send("a").with_options(dellay=1))
    with pytest.raises(InvalidInput, match="Did you mean 'timeout'"):
        app.job(timout=1)(Order)  # type: ignore[call-overload]


async def test_a_job_of_another_app_is_unknown_here(app: App, send: Any) -> None:
    """The error says the name and the nearest one that is known."""
    other = App("memory://")

    @other.job()
    async def sent(ctx: Context) -> None: ...

    async with app:
        with pytest.raises(JobTypeNotRegistered, match="Did you mean 'send'"):
            await app.tenant("acme").enqueue(sent())
