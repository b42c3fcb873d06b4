"""`@app.source`: what it registers, and which definitions it refuses at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.code_sources import Source
from holdfast.core.changes import Draft, entries, fitting
from holdfast.core.errors import ConfigError, JobTypeAlreadyRegistered
from holdfast.core.shadow import ShadowStep
from holdfast.core.source import SourceState, encode
from holdfast.sources import Item, Page, SourceChange
from holdfast.testing import drain


async def take(ctx: Context, change: SourceChange) -> None:
    """Takes changes."""


async def take_two(ctx: Context, one: int, other: int) -> None:
    """Does not."""


def make_app(**options: Any) -> tuple[App, Source]:
    """An app with one source, and that source."""
    app = App("memory://", tenant="acme")

    @app.source("parts", **options)
    async def parts(ctx: Context, cursor: int) -> Page:
        return Page([Item(1)])

    return app, parts


async def started(**options: Any) -> None:
    """What a worker does first."""
    app, parts = make_app(**options)
    parts.changed(take)
    await drain(app)


async def test_a_source_without_a_job_for_its_changes_stops_a_worker_at_its_start() -> None:
    """It says how to write one."""
    app, _ = make_app()

    with pytest.raises(ConfigError, match=r"decorate a function with @parts\.changed"):
        await drain(app)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"page": 0}, "page"),
        ({"page": 1001}, "page"),
        ({"pages": 0}, "pages"),
        ({"overlap": -1}, "overlap"),
        ({"reconcile": 0.5}, "reconcile"),
        ({"every": 0}, "every"),
        ({"deletes": 2}, "deletes"),
        ({"keep_gone": -1}, "keep_gone"),
        ({"strategy": "ascendin"}, "Did you mean 'ascending'"),
    ],
)
async def test_wrong_options_are_named(options: dict[str, Any], why: str) -> None:
    """P15: by the setting, when the worker starts."""
    with pytest.raises(ConfigError, match=why):
        await started(**options)


def test_an_unknown_option_is_refused_where_it_is_written() -> None:
    """With what was meant."""
    app = App("memory://", tenant="acme")
    with pytest.raises(ConfigError, match="Did you mean 'overlap'"):
        app.source("parts", overlaps=3)  # type: ignore[call-arg]
    for name in ("", "a b", "a/b", "x" * 41):
        with pytest.raises(ConfigError, match="source"):
            app.source(name)


def test_two_sources_of_one_name_are_refused() -> None:
    """Their polls would be one job type."""
    app, _ = make_app()
    with pytest.raises(JobTypeAlreadyRegistered):
        app.source("parts")(lambda ctx, cursor: Page([]))


async def test_a_job_that_cannot_take_changes_is_refused() -> None:
    """P15: by its arguments, or because a key would make one job of several changes."""
    app, parts = make_app()
    parts.changed(take_two)
    with pytest.raises(ConfigError, match="must take one argument"):
        await drain(app)

    app, parts = make_app()
    parts.changed(key=lambda job: "one")(take)
    with pytest.raises(ConfigError, match=r"may have no key="):
        await drain(app)

    with pytest.raises(ConfigError, match="already"):
        parts.changed(name="other")(take)


async def test_a_plain_function_is_run_in_a_thread_and_a_job_type_takes_the_changes() -> None:
    """With `on_change` the changes go to a function that was registered before."""
    app = App("memory://", tenant="acme")
    threads: list[int] = []
    seen: list[str] = []

    @app.job(queue="sync")
    async def apply(ctx: Context, change: SourceChange, again: bool = False) -> None:
        seen.append(change.id)

    @app.source("parts", on_change=apply)
    def parts(ctx: Context, cursor: int) -> Page:
        threads.append(threading.get_ident())
        return Page([Item(1), Item(2)])

    async with app:
        await drain(app)
        await app.default.source("parts").poll_now()
        await drain(app)

    assert seen == ["1", "2"]
    assert threads != []
    assert threading.get_ident() not in threads


def test_blocking_code_has_the_same_calls() -> None:
    """`app.sync` is the bridge."""
    app, parts = make_app()
    parts.changed(take)

    with app.sync as calls:
        source = calls.tenant("acme").source("parts")
        assert source.push([Item(1, 1)]).created == 1
        assert source.status().objects == 1
        assert [one.id for one in source.objects().objects] == ["1"]
        assert source.get("1", "none")[0].version == 1
        assert source.pause("vendor down").state == "paused"
        assert source.resume().paused is None
        assert source.reset().cursor is None
        assert source.poll_now().created
        assert not source.reconcile_now().created
        assert [one.source for one in calls.tenant("acme").sources()] == ["parts"]
        assert source.delete() == 1


@pytest.mark.parametrize("size", [0, 10, 60_000])
def test_a_step_is_never_larger_than_its_entries_say(size: int) -> None:
    """P15: whatever their ids and bodies are escaped to, the step that they make fits."""
    _, parts = make_app()
    parts.changed(take)
    state = SourceState(born=1, plan=parts.plan())
    found = entries(
        "parts", [Item('"' * 250 + f"{n:04}", body="é" * (size // 2)) for n in range(90)]
    )
    part = fitting(found, lambda one: one.size, 100)
    draft = Draft("acme", "parts", state, {})
    draft.absorb(part)

    step = ShadowStep(
        tenant="acme",
        source="parts",
        expect="",
        stamp="s",
        state=encode(draft.state),
        put=tuple(draft.put.values()),
        jobs=tuple(draft.jobs),
    )
    assert step.checked() is step
    assert step.size <= sum(one.size for one in part)
