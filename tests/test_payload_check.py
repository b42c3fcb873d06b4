"""The deploy check: what new code cannot read of what old code has stored."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import App, Context, Flow, Reason, State
from holdfast.core import bounds
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Envelope, NewJob, Rules
from holdfast.payload_check import OTHERS, Group, Options, Problem, Report, Source, check_payloads
from holdfast.testing import drain

SECRET = "ada@example.com"


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


def old_app(url: str) -> tuple[App, Any]:
    """What is deployed, and its types: they have other arguments than the new ones."""
    app = App(url, max_attempts=1)

    @app.job
    async def gone(ctx: Context, to: str) -> None: ...

    @app.job
    async def changed(ctx: Context, to: str) -> None: ...

    @app.job
    async def raised(ctx: Context, to: str) -> int:
        raise ValueError("no")

    @app.job
    async def sums(ctx: Context, part: int, to: str) -> None: ...

    return app, SimpleNamespace(gone=gone, changed=changed, raised=raised, sums=sums)


def new_app(store: Any) -> App:
    app = App(store)

    @app.job
    async def same(ctx: Context, to: str) -> None: ...

    @app.job
    async def changed(ctx: Context, to: int) -> None: ...

    @app.job
    async def lower(ctx: Context, to: str) -> None: ...

    @app.job(version=2, upgrades={1: _stumbles})
    async def raised(ctx: Context, to: str) -> int:
        return 1

    @app.job
    async def sums(ctx: Context, part: int, to: int) -> None: ...

    return app


def _stumbles(plain: Any) -> Any:
    raise ValueError(f"cannot upgrade {plain}")


async def stored(app: App, type: str, id: str, tenant: str = "acme", **more: Any) -> None:
    """A job as another language, or an older version, would have enqueued it."""
    sealed = Envelope(type, more.pop("codec", "json"), more.pop("version", 1), more.pop("body"))
    queue = more.pop("queue", "default")
    job = NewJob(tenant=tenant, id=id, queue=queue, envelope=sealed, rules=Rules(), **more)
    [answer] = await app.store.enqueue([job])
    assert answer.created


def found(report: Report) -> dict[tuple[str, str], Group]:
    return {(group.source.value, group.type): group for group in report.groups}


async def test_each_kind_of_problem_is_told_by_type_with_counts_and_samples(url: str) -> None:
    """Unknown types, newer versions, other codecs, wrong fields and failing upgrades."""
    app = new_app(url)
    body = b'{"to":"%s"}' % SECRET.encode()
    async with app:
        await stored(app, "same", "s1", body=body)
        await stored(app, "gone", "g1", body=body)
        await stored(app, "gone", "g2", body=body, delay_us=3_600_000_000)
        await stored(app, "changed", "c1", body=body, tenant="globex")
        await stored(app, "lower", "l1", body=body, version=2)
        await stored(app, "raised", "r1", body=body)
        await stored(app, "same", "x1", body=body, codec="yaml")
        await stored(app, "same", "p1", body=b"cos\n", codec="pickle")

        report = await check_payloads(app)

    told = {(group.type, group.problem, group.why, group.count) for group in report.groups}
    assert told == {
        ("gone", Problem.UNKNOWN_TYPE, "", 2),
        ("changed", Problem.UNREADABLE, "Expected `int`, got `str` at $.to", 1),
        ("lower", Problem.NEWER_VERSION, "", 1),
        ("raised", Problem.UNREADABLE, "ValueError", 1),
        ("same", Problem.UNKNOWN_CODEC, "", 1),
        ("same", None, "", 1),
    }
    assert {group.codec for group in report.groups} == {"json", "yaml", "pickle"}
    gone = found(report)["job", "gone"]
    assert gone.states == {"enqueued": 1, "scheduled": 1}
    assert [(one.tenant, one.id) for one in gone.samples] == [("acme", "g1"), ("acme", "g2")]
    assert (report.checked, report.broken, report.complete) == (8, 7, True)
    assert SECRET not in repr(report)


async def test_payloads_are_shown_only_if_they_are_asked_for(url: str) -> None:
    """P7: a log of a build is no place for them; an upgrade's error quotes them too."""
    app = new_app(url)
    async with app:
        await stored(app, "raised", "r1", body=b'{"to":"%s"}' % SECRET.encode())
        quiet = await check_payloads(app)
        loud = await check_payloads(app, Options(payloads=True))

    assert SECRET not in repr(quiet)
    [group] = loud.groups
    assert f"cannot upgrade {{'to': '{SECRET}'}}" in str(group.samples[0].text)


async def test_jobs_that_have_ended_are_checked_if_they_can_run_again(tmp_path: Path) -> None:
    """Dead letters can be replayed; completed and canceled jobs are history."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    old, types = old_app(url)
    async with old:
        acme = old.tenant("acme")
        dead = await acme.enqueue(types.raised(SECRET))
        await acme.enqueue(types.changed(SECRET))
        await drain(old)
        canceled = await acme.enqueue(types.changed(SECRET))
        await acme.cancel(canceled.id)
        assert (await acme.get(dead.id)).reason is Reason.MAX_ATTEMPTS
    new = new_app(url)
    await new.store.open()

    report = await check_payloads(new)
    await new.store.close()

    [group] = report.groups
    assert (group.type, group.states) == ("raised", {State.FAILED.value: 1})


async def test_schedules_and_jobs_that_flows_will_make_are_checked(tmp_path: Path) -> None:
    """What is stored of them is a payload as well; so are arguments beside results of others."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    old, types = old_app(url)
    async with old:
        acme = old.tenant("acme")
        await acme.schedule("nightly").set(types.changed(SECRET), every=3600)
        flow = Flow("report")
        first = flow.add(types.raised(SECRET))
        flow.undo(first, types.gone(SECRET))
        flow.add(types.sums(first.result(), SECRET))
        await acme.start(flow)
    new = new_app(url)
    await new.store.open()

    groups = found(await check_payloads(new))
    await new.store.close()

    assert groups["schedule", "changed"].problem is Problem.UNREADABLE
    assert groups["schedule", "changed"].samples[0].id == "nightly"
    assert groups["flow", "gone"].problem is Problem.UNKNOWN_TYPE
    assert groups["job", "sums"].why == "Expected `int`, got `str`"
    assert groups["job", "holdfast.flow"].problem is None
    assert groups["job", "holdfast.tick"].problem is None


async def test_a_report_is_bounded_and_says_what_it_left_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: names of types come from outside; jobs may be more than anybody wants to read."""
    monkeypatch.setattr("holdfast.payload_check.CHECK_GROUPS_MAX", 2)
    app = new_app(url)
    counts: list[int] = []
    async with app:
        for number in range(6):
            await stored(app, f"type-{number}", f"j{number}", body=b"{}")
        whole = await check_payloads(app, Options(samples=1), counts.append)
        part = await check_payloads(app, Options(jobs_max=4))

    others = found(whole)["job", OTHERS]
    assert (len(whole.groups), others.count, len(others.samples)) == (3, 4, 1)
    assert (whole.complete, counts[-1]) == (True, 6)
    assert (part.complete, part.checked) == (False, 4)
    with pytest.raises(InvalidInput, match="samples"):
        await check_payloads(app, Options(samples=bounds.CHECK_SAMPLES_MAX + 1))


async def test_one_tenant_is_checked_alone(url: str) -> None:
    """P7: nothing of the others is read or told."""
    app = new_app(url)
    async with app:
        await stored(app, "gone", "a", body=b"{}")
        await stored(app, "gone", "b", body=b"{}", tenant="globex")

        report = await check_payloads(app, Options(tenant="globex"))

    [group] = report.groups
    assert [(one.tenant, one.id) for one in group.samples] == [("globex", "b")]
    assert Source.JOB is group.source
