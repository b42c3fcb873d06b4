"""Keys that a job type derives from the arguments: one job per key, whoever enqueues it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast import App, Context, InvalidInput, Job
from holdfast.core.errors import ConfigError
from holdfast.testing import ManualClock, drain


class Size(Enum):
    LARGE = "large"


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    memory = request.param == "memory"
    clock = ManualClock() if memory else None
    async with App(
        "memory://" if memory else f"sqlite:///{tmp_path / 'jobs.db'}", clock=clock
    ) as app:
        yield app


def wave(app: App, key: Any, **options: Any) -> Any:
    """A job type with this key."""

    @app.job(name="wave", key=key, **options)
    async def wave(ctx: Context, track: str, size: Any = None) -> None: ...

    return wave


async def test_jobs_with_the_same_arguments_are_one_job(app: App) -> None:
    """The text names the arguments that count; the others may differ."""
    make, acme = wave(app, "wave:{track}"), app.tenant("acme")

    first = await acme.enqueue(make("t1", size=1))
    again = await acme.enqueue(make("t1", size=2))
    other = await acme.enqueue(make("t2"))

    assert (again.id, again.created, other.created) == (first.id, False, True)
    assert (await acme.get(first.id)).key == "wave:t1"
    assert (await app.tenant("globex").enqueue(make("t1"))).created


async def test_the_key_is_free_when_the_first_job_has_ended(app: App) -> None:
    """As with a key given at the enqueue."""
    make, acme = wave(app, "wave:{track}"), app.tenant("acme")
    await acme.enqueue(make("t1"))
    await drain(app)

    assert (await acme.enqueue(make("t1"))).created


async def test_a_class_and_a_callable_derive_keys_too(app: App) -> None:
    """The callable takes the job; None means no key."""

    @app.job(key=lambda job: f"resize:{job.image}" if job.width > 1 else None)
    class Resize(Job):
        image: str
        width: int

        async def run(self, ctx: Context) -> None: ...

    acme = app.tenant("acme")
    made = [await acme.enqueue(Resize(image="i", width=width)) for width in (2, 3, 1, 1)]

    assert [one.created for one in made] == [True, False, True, True]
    assert [(await acme.get(one.id)).key for one in made[1:]] == ["resize:i", None, None]


async def test_a_key_of_the_enqueue_wins(app: App) -> None:
    """Also one of `with_options`, and None for none at all."""
    make, acme = wave(app, "wave:{track}"), app.tenant("acme")
    answers = [
        await acme.enqueue(make("t1")),
        await acme.enqueue(make("t1"), key="mine"),
        await acme.enqueue(make("t1").with_options(key="other")),
        await acme.enqueue(make("t1"), key=None),
    ]

    keys = [(await acme.get(one.id)).key for one in answers]
    assert keys == ["wave:t1", "mine", "other", None]
    assert [one.created for one in answers] == [True] * 4


async def test_many_jobs_have_keys_of_their_own(app: App) -> None:
    """Each from its own arguments; other options keep it."""
    make, acme = wave(app, "wave:{track}"), app.tenant("acme")

    made = await acme.enqueue_many([make("a"), make("b"), make("a")], priority=3)

    assert (made.created, made.existing) == (2, 1)


async def test_follow_up_jobs_have_keys(app: App) -> None:
    """`ctx.enqueue` is the same enqueue."""
    make = wave(app, "wave:{track}")

    @app.job
    async def both(ctx: Context) -> list[bool]:
        return [(await ctx.enqueue(make("t1"))).created for _ in range(2)]

    job = await app.tenant("acme").enqueue(both())
    await drain(app, max_jobs=1)

    assert await job.wait() == [True, False]


async def test_a_type_without_arguments_may_have_one_key(app: App) -> None:
    """Its jobs are all alike, so one that waits is enough."""

    @app.job(key="refresh")
    async def refresh(ctx: Context) -> None: ...

    acme = app.tenant("acme")

    assert [(await acme.enqueue(refresh())).created for _ in range(2)] == [True, False]


async def test_the_time_of_a_key_can_be_set_without_giving_a_key(app: App) -> None:
    """The type has one; where the callable gives none there is nothing to hold."""
    make, acme = wave(app, lambda job: job.size), app.tenant("acme")

    await acme.enqueue(make("t1", size="k"), key_for=3600)
    await acme.enqueue(make("t1"), key_for=3600)
    await drain(app)

    assert not (await acme.enqueue(make("t1", size="k"), key_for=3600)).created


@pytest.mark.parametrize(
    ("size", "key"),
    [
        ("large", "large"),
        (7, "7"),
        (True, "true"),
        (0.1, "0.1"),
        (Size.LARGE, "large"),
        (date(2026, 11, 19), "2026-11-19"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
async def test_values_stand_in_a_text_as_they_do_in_json(app: App, size: Any, key: str) -> None:
    """So equal arguments give equal keys in every process, whatever Python prints of them."""
    make, acme = wave(app, "{size}:{{{track}}}"), app.tenant("acme")

    job = await acme.enqueue(make("t", size=size))

    assert (await acme.get(job.id)).key == f"{key}:{{t}}"


@pytest.mark.parametrize(
    ("given", "size", "word"),
    [
        ("{size}", None, "argument 'size' of 'wave' is NoneType"),
        ("{size}", ["a"], "argument 'size' of 'wave' is list"),
        ("{size}", "x" * 2000, "has 2000 characters"),
        ("{size}", "a\nb", "has control characters"),
        (lambda job: 5, 1, "key= of job type 'wave' returned int"),
        (lambda job: "", 1, "must not be empty"),
    ],
)
async def test_what_is_no_key_is_refused_at_the_enqueue(
    app: App, given: Any, size: Any, word: str
) -> None:
    """A job without the key it was meant to have could be made twice."""
    with pytest.raises(InvalidInput, match=r"^key: ") as raised:
        await app.tenant("acme").enqueue(wave(app, given)("t", size=size))

    assert word in str(raised.value)
    assert (await app.tenant("acme").find()).jobs == []


async def asleep(job: Any) -> str:
    return "k"


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("wave:{trak}", "'wave' has no argument 'trak'. Did you mean 'track'?"),
        ("wave:{ctx}", "no argument 'ctx'"),
        ("wave:{}", "braces take the name of an argument"),
        ("wave:{0}", "braces take the name of an argument"),
        ("wave:{track.name}", "braces take the name of an argument"),
        ("wave:{track[0]}", "braces take the name of an argument"),
        ("wave:{track!r}", "braces take the name of an argument"),
        ("wave:{size:>10}", "braces take the name of an argument"),
        ("wave:{track", "expected '}'"),
        ("", "must not be empty"),
        ("track", "all jobs of 'wave' would be one; write '{track}'"),
        (5, "must be a text"),
        (asleep, "is async"),
    ],
)
def test_a_wrong_key_is_refused_when_the_type_is_registered(key: Any, word: str) -> None:
    """Not at the first enqueue, which may come days later."""
    app = App("memory://")
    with pytest.raises(ConfigError, match="'key'") as raised:
        wave(app, key)

    assert word in str(raised.value)
    assert app.registry.names() == []
