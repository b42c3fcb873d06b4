"""`holdfast flows`: list, show, cancel and retry."""

from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import pytest
from tests.cli.test_cli_scopes import Desk

from holdfast import App, Context, Fail, Flow
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
