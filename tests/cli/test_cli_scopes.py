"""`holdfast limit`, `pause`, `resume`, `groups`, `load`, `cancel --group` and `job --explain`."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from holdfast import App
from holdfast.cli.main import cli
from holdfast.core.clock import SECOND
from holdfast.core.job import Envelope, Lease, NewJob, Rules
from holdfast.store import Claim, Store

T = TypeVar("T")


class Desk:
    """A store of this process that the command line reaches by an app, with jobs on it."""

    def __init__(self, app: App) -> None:
        self.app = app

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, prog_name="holdfast")

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def use(self, act: Callable[[Store], Awaitable[T]]) -> T:
        async def main() -> T:
            async with self.app:
                return await act(self.app.store)

        return asyncio.run(main())

    def add(self, *ids: str, tenant: str = "acme", queue: str = "mail", **options: Any) -> None:
        """Enqueues jobs that nobody can run."""
        envelope = Envelope("greet", "json", 1, b"{}")
        new = [
            NewJob(tenant=tenant, id=id, queue=queue, envelope=envelope, rules=Rules(), **options)
            for id in ids
        ]
        self.use(lambda store: store.enqueue(new))

    def lease(self, limit: int = 100) -> list[Lease]:
        claim = Claim(worker="w", nonce="n", limit=limit, lease_us=60 * SECOND)
        return self.use(lambda store: store.claim(claim))


@pytest.fixture(params=["memory", "sqlite"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    module = types.ModuleType("desk_shop")
    app = App(url)
    vars(module)["app"] = app
    monkeypatch.setitem(sys.modules, "desk_shop", module)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv("HOLDFAST_APP", "desk_shop:app")
    if not app.store.capabilities.scopes:
        pytest.skip("this store keeps no scopes yet")
    return Desk(app)


# -- limit -----------------------------------------------------------------------------------------


def test_a_limit_is_set_and_shown(desk: Desk) -> None:
    """It holds at once; what is not named stays."""
    desk.add("a", "b", "c")

    said = desk.run("limit", "acme", "--queue", "mail", "--max-running", "2", "--rate", "100/s")
    again = desk.json("limit", "acme", "--queue", "mail", "--burst", "5")

    assert (said.exit_code, len(desk.lease())) == (0, 2)
    assert "queue 'mail' of tenant 'acme': max 2 running, 100/s" in said.stdout
    assert (again["kind"], again["name"], again["version"]) == ("queue", "mail", 2)
    assert (again["max_running"], again["rate"], again["burst"]) == (2, "100/s", 5)
    assert again["counts"]["enqueued"] == 3


def test_none_takes_a_limit_away_on_the_command_line(desk: Desk) -> None:
    """`none`, as a word."""
    desk.run("limit", "acme", "--max-running", "2", "--weight", "5", "--rate", "1/m")

    after = desk.json("limit", "acme", "--max-running", "none", "--rate", "none")

    assert (after["max_running"], after["rate"], after["weight"]) == (None, None, 5)


def test_a_queue_says_what_its_groups_have(desk: Desk) -> None:
    """By options of their own."""
    done = desk.json(
        *("limit", "acme", "--queue", "mail", "--group-max-running", "1"),
        *("--group-rate", "2/s", "--group-ordered", "yes"),
    )

    assert done["groups"] == {"max_running": 1, "rate": "2/s", "burst": 2, "ordered": True}


def test_showing_changes_nothing(desk: Desk) -> None:
    """With --show, or without any option."""
    shown = desk.run("limit", "acme", "--show")
    wrong = desk.run("limit", "acme", "--show", "--weight", "2")

    assert shown.stdout.startswith("tenant 'acme': no limits\nversion 0")
    assert (wrong.exit_code, desk.json("limit", "acme")["version"]) == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["limit", "acme", "--max-running", "0"], 1, "max_running: is 0"),
        (["limit", "acme", "--max-running", "x"], 2, "neither a whole number"),
        (["limit", "acme", "--rate", "100"], 1, "a number and a unit"),
        (["limit", "acme", "--ordered", "maybe"], 2, "is not yes, no or none"),
        (["limit", "acme", "--queue", "q", "--group", "g"], 2, "cannot be combined"),
        (["limit", "acme", "--queue", "q", "--weight", "2"], 1, "is a setting of a tenant"),
        (["limit", "acme", "--weight", "2", "--expect", "7"], 1, "[STALE_SETTING]"),
        (["limit", "acme", "--group", "g" * 257, "--ordered", "yes"], 1, "257 characters"),
        (["pause", "acme", "--queue", "nil", "--reason", "r"], 1, "there is no queue 'nil'"),
        (["resume", "globex"], 1, "there is no tenant 'globex'"),
        (["pause", "acme"], 2, "--reason"),
        (["cancel", "--tenant", "acme"], 2, "give IDs or --group"),
        (["cancel", "a", "--group", "g", "--tenant", "acme"], 2, "give IDs or --group"),
        (["cancel", "--group", "nil", "--tenant", "acme"], 1, "there is no group 'nil'"),
        (["job", "nil", "--explain"], 3, "[JOB_NOT_FOUND]"),
        (["load", "--at-most", "1", "--at-least", "2"], 1, "at_least: is 2"),
    ],
)
def test_bad_input_is_told_and_changes_nothing(
    desk: Desk, arguments: list[str], code: int, words: str
) -> None:
    """An error of ours is 1, a command not understood is 2."""
    desk.add("a")

    done = desk.run(*arguments)

    assert (done.exit_code, words in done.stderr) == (code, True), done.output
    assert desk.json("limit", "acme")["version"] == 0


# -- pause -----------------------------------------------------------------------------------------


def test_a_pause_is_visible_everywhere(desk: Desk) -> None:
    """In the lists of jobs, queues, tenants and groups, and in the explanation."""
    desk.add("a", group="g")

    paused = desk.json("pause", "acme", "--reason", "invoice 17", "--author", "ada")
    desk.run("pause", "acme", "--queue", "mail", "--reason", "provider", "--author", "bob")
    desk.run("pause", "acme", "--group", "g", "--reason", "broken", "--author", "eve")

    assert paused["paused"] == {"reason": "invoice 17", "author": "ada", "platform": True}
    assert "paused by ada: invoice 17" in desk.run("tenants").stdout
    assert "paused by bob: provider" in desk.run("queues").stdout
    assert "paused by eve: broken" in desk.run("groups", "acme").stdout
    assert "paused by ada: invoice 17" in desk.run("jobs").stdout
    assert len(desk.json("jobs")["pauses"]) == 3
    assert [gate["kind"] for gate in desk.json("job", "a", "--explain")["gates"]] == [
        *(["pause"] * 3),
        "no_worker",
    ]
    assert desk.lease() == []


def test_a_resume_ends_a_pause(desk: Desk) -> None:
    """And says so."""
    desk.add("a")
    desk.run("pause", "acme", "--queue", "mail", "--reason", "r")

    done = desk.run("resume", "acme", "--queue", "mail")

    assert done.stdout == "queue 'mail' of tenant 'acme': not paused\n"
    assert len(desk.lease()) == 1


def test_limits_stand_beside_the_counts(desk: Desk) -> None:
    """For programs as data, or null."""
    desk.add("a")
    desk.run("limit", "acme", "--queue", "mail", "--max-running", "3")

    [queue], [tenant] = desk.json("queues"), desk.json("tenants")

    assert (queue["settings"]["max_running"], queue["slots"]) == (3, 0)
    assert tenant["settings"] is None


# -- groups ----------------------------------------------------------------------------------------


def test_groups_are_listed_in_pages(desk: Desk) -> None:
    """By name; the last of a page leads to the next."""
    for name in ("b", "a", "c"):
        desk.add(f"j-{name}", group=name)

    first = desk.json("groups", "acme", "--limit", "2")
    rest = desk.json("groups", "acme", "--after", first["after"])

    assert [one["group"] for one in first["groups"]] == ["a", "b"]
    assert ([one["group"] for one in rest["groups"]], rest["after"]) == (["c"], None)
    assert "--after 'b'" in desk.run("groups", "acme", "--limit", "2").stdout
    assert desk.run("groups", "globex").stdout == "no groups\n"


def test_a_group_is_canceled_as_a_whole(desk: Desk) -> None:
    """Its ended jobs and other jobs are let be."""
    desk.add(*(f"g{number}" for number in range(700)), group="g")
    desk.add("other")

    done = desk.run("cancel", "--group", "g", "--tenant", "acme")
    again = desk.json("cancel", "--group", "g", "--tenant", "acme")

    assert (done.exit_code, done.stdout) == (0, "700 jobs canceled\n")
    assert again == {"canceled": 0}
    assert len(desk.lease()) == 1


# -- explain and load ------------------------------------------------------------------------------


def test_an_explanation_reads_well(desk: Desk) -> None:
    """A line for each gate, who is in the way, and the place in line."""
    desk.add("a", "b")
    desk.run("limit", "acme", "--queue", "mail", "--max-running", "1")
    desk.lease()

    done = desk.run("job", "b", "--explain", "--tenant", "acme")

    assert done.exit_code == 0
    assert "b is enqueued" in done.stdout
    assert "limit      queue mail runs 1 job, its limit is 1" in done.stdout
    assert "held by a" in done.stdout
    assert "no_worker  no worker is present" in done.stdout


def test_load_tells_what_is_runnable_and_how_many_workers_it_wants(desk: Desk) -> None:
    """What a limit or a pause holds back wants no worker."""
    desk.add(*(f"j{number}" for number in range(30)))
    desk.add(*(f"k{number}" for number in range(30)), tenant="globex", queue="crawl")
    desk.run("limit", "globex", "--max-running", "5")

    found = desk.json("load", "--waiting-per-slot", "1")
    part = desk.json("load", "--tenants", "globex", "--queues", "*")
    words = desk.run("load", "--queues", "mail", "--at-least", "2").stdout

    assert (found["runnable"], found["waiting"], found["wanted"]) == (35, 60, 4)
    assert (part["runnable"], part["wanted"]) == (5, 1)
    assert "runnable     30 of 30 ready jobs" in words
    assert "wanted       2 workers" in words
