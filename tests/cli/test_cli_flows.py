"""`holdfast flows`: start, list, show, cancel and retry."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.test_cli_scopes import Desk

from holdfast import App, Context, Fail, Flow
from holdfast.cli.main import cli
from holdfast.testing import drain


class Runs(Desk):
    """An app on the store of this process, with flows."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.broken = True

        @app.job(max_attempts=1)
        async def step(ctx: Context, name: str) -> None:
            if name == "bad" and self.broken:
                raise Fail("it is bad")

        self.step = step

    def start(self, name: str, *steps: str) -> str:
        flow, before = Flow(name), None
        for step in steps:
            before = flow.add(self.step(step), after=() if before is None else before)
        return str(self.do(self.app.tenant("acme").start(flow)).id)

    def do(self, work: Any) -> Any:
        async def main() -> Any:
            async with self.app:
                return await work

        return asyncio.run(main())

    def drain(self) -> None:
        self.do(drain(self.app))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    module = types.ModuleType("runs_flows")
    app = App("memory://")
    vars(module)["app"] = app
    monkeypatch.setitem(sys.modules, "runs_flows", module)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv("HOLDFAST_APP", "runs_flows:app")
    return Runs(app)


def test_flows_are_listed_and_shown(runs: Runs) -> None:
    """For people and as JSON."""
    assert runs.run("flows", "list", "--tenant", "acme").stdout == "no flows\n"
    one = runs.start("nightly", "one", "bad")
    two = runs.start("hourly", "one")
    runs.drain()

    listed = runs.run("flows", "list", "--tenant", "acme")
    failed = runs.json("flows", "list", "--tenant", "acme", "--state", "failed")
    page = runs.json("flows", "list", "--tenant", "acme", "--limit", "1")
    shown = runs.run("flows", "show", one, "--tenant", "acme")
    told = runs.json("flows", "show", one, "--tenant", "acme", "--limit", "1")

    assert listed.exit_code == 0, listed.output
    assert one in listed.stdout
    assert two in listed.stdout
    assert [flow["id"] for flow in failed["flows"]] == [one]
    assert ([flow["id"] for flow in page["flows"]], page["after"] is None) == ([two], False)
    assert f"{one} nightly: failed, 0 of 2 nodes left, 1 failed" in shown.stdout
    assert "it is bad" in shown.stdout
    assert (told["state"], told["failed"], told["after"]) == ("failed", 1, 0)
    assert [node["state"] for node in told["nodes"]] == ["completed"]
    assert runs.run("flows", "show", one, "--tenant", "globex").exit_code == 3


def test_a_flow_is_canceled_once(runs: Runs) -> None:
    """A second cancel of a running flow does no harm; an ended one is told."""
    id = runs.start("nightly", "one", "two")

    done = runs.run("flows", "cancel", id, "--tenant", "acme", "--why", "wrong day")
    runs.drain()

    assert (done.exit_code, done.stdout) == (0, f"canceled {id}\n")
    assert runs.json("flows", "show", id, "--tenant", "acme")["state"] == "canceled"
    whole = runs.start("nightly", "one", "two")
    assert runs.run("cancel", whole, "--tenant", "acme").stdout == f"canceled {whole}\n"
    assert runs.json("flows", "show", whole, "--tenant", "acme")["left"] == 0
    ended = runs.start("nightly", "one")
    runs.drain()
    late = runs.run("flows", "cancel", ended, "--tenant", "acme")
    assert (late.exit_code, late.stdout) == (1, "")
    assert f"all nodes of {ended} had ended" in late.stderr


def test_a_flow_is_retried(runs: Runs) -> None:
    """Once; the answer names the new run."""
    id = runs.start("nightly", "one", "bad")
    runs.drain()
    runs.broken = False

    first = runs.json("flows", "retry", id, "--tenant", "acme")
    again = runs.run("flows", "retry", id, "--tenant", "acme", "--mode", "all")
    runs.drain()

    assert (first["id"], first["created"]) == (id, True)
    assert again.stdout == f"{id} is retried as {first['retried_as']} already\n"
    shown = runs.run("flows", "show", first["retried_as"], "--tenant", "acme")
    assert f"retries {id}, 1 nodes taken over" in shown.stdout
    assert "completed (taken over)" in shown.stdout
    early = runs.run("flows", "retry", runs.start("n", "one"), "--tenant", "acme")
    assert early.exit_code == 1
    assert "NOT_CHANGEABLE" in early.stderr


# -- start -----------------------------------------------------------------------------------------

MAP = {"over": "a", "item": "nam"}
TOLD: dict[str, Any] = {
    "name": "nightly",
    "nodes": [
        {"name": "b", "type": "step", "args": {"name": {"$result": "a"}}},
        {"name": "a", "type": "listing", "args": {"size": 2}},
        {"name": "c", "type": "step", "map": {"over": "d", "item": "name"}},
        {"name": "d", "type": "listing", "args": {"size": 2}, "after": ["b"]},
    ],
}


def written(folder: Path, told: Any = TOLD, **changes: Any) -> str:
    path = folder / "flow.json"
    path.write_text(told if isinstance(told, str) else json.dumps({**told, **changes}))
    return str(path)


def listing(runs: Runs) -> None:
    @runs.app.job(name="listing")
    async def listing(ctx: Context, size: int) -> Any:
        return ["x"] * size if ctx.job_id.endswith("-2") else "x"


def test_a_flow_of_a_file_is_started_once_with_its_key(runs: Runs, tmp_path: Path) -> None:
    """The same form as over HTTP; the types of the app check the arguments."""
    listing(runs)
    file = written(tmp_path)

    first = runs.json("flows", "start", file, "--tenant", "acme", "--key", "today")
    again = runs.run("flows", "start", file, "--tenant", "acme", "--key", "today")
    runs.drain()

    assert (first["created"], first["unknown_types"]) == (True, [])
    assert again.stdout == f"{first['id']}\n"
    assert "was started before" in again.stderr
    shown = runs.json("flows", "show", first["id"], "--tenant", "acme")
    assert (shown["state"], shown["total"]) == ("completed", 4)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("{", "file: is not JSON"),
        ("[]", "body: Expected `object`"),
        ({**TOLD, "nodes": []}, "nodes: Expected `array` of length >= 1"),
        (
            {"name": "x", "nodes": [{"name": "a", "type": "stepp"}]},
            "node a: type: job type 'stepp' is not registered with this app. Did you mean 'step'?",
        ),
        (
            {"name": "x", "nodes": [{"name": "a", "type": "step", "args": {"name": 1}}]},
            "node a: arguments of 'step': Expected `str`, got `int`",
        ),
        (
            {"name": "x", "nodes": [{"name": "a", "type": "step"}]},
            "node a: arguments of 'step': Missing required argument 'name'",
        ),
        (
            {"name": "x", "nodes": [*TOLD["nodes"][1:2], {**TOLD["nodes"][2], "map": MAP}]},
            "node c: map.item: 'step' has no argument 'nam'. Did you mean 'name'?",
        ),
    ],
    ids=str,
)
def test_a_file_that_is_wrong_starts_nothing(
    runs: Runs, tmp_path: Path, told: Any, why: str
) -> None:
    """The error names the node."""
    listing(runs)

    done = runs.run("flows", "start", written(tmp_path, told), "--tenant", "acme")

    assert done.exit_code == 1
    assert why in done.stderr
    assert runs.run("flows", "list", "--tenant", "acme").stdout == "no flows\n"


def test_types_without_code_are_started_from_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a note, because nobody has published them."""
    monkeypatch.delenv("HOLDFAST_APP", raising=False)
    arguments = ["flows", "start", "-", "--tenant", "acme", "--store", f"sqlite:///{tmp_path}/j.db"]

    done = CliRunner().invoke(cli, arguments, input=json.dumps(TOLD))

    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("flow-")
    assert "no app has published 'listing', 'step'" in done.stderr
