"""`holdfast limit --platform`, `pause --platform` and `resume --platform`: all tenants together."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.cli.test_cli_scopes import Desk

from holdfast import App, Context
from holdfast.cli.main import cli
from holdfast.core.job import EventKind
from holdfast.store import Put


@pytest.fixture(params=["memory", "sqlite"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    module = types.ModuleType("desk_platform")
    app = App(url)

    @app.job(queue="mail")
    async def send_email(ctx: Context, to: str) -> None:
        """Nothing to do."""

    vars(module)["app"] = app
    monkeypatch.setitem(sys.modules, "desk_platform", module)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv("HOLDFAST_APP", "desk_platform:app")
    if not app.store.capabilities.platform:
        pytest.skip("this store keeps no limits of the platform yet")
    return Desk(app)


WHERE: dict[str, tuple[str, ...]] = {
    "the platform": ("--platform",),
    "queue 'mail' of the platform": ("--platform", "--queue", "mail"),
    "type 'send_email' of the platform": ("--platform", "--type", "send_email"),
}
each_scope = pytest.mark.parametrize("name", WHERE)


@each_scope
def test_a_limit_of_all_tenants_is_set_and_shown(desk: Desk, name: str) -> None:
    """P13: it holds for the jobs of all tenants together."""
    for tenant in ("acme", "globex"):
        desk.add("a", "b", tenant=tenant)

    said = desk.run("limit", *WHERE[name], "--max-running", "2", "--rate", "100/s")
    again = desk.json("limit", *WHERE[name], "--burst", "5")

    assert said.exit_code == 0, said.output
    assert said.stdout.startswith(f"{name}: max 2 running, 100/s\nversion 1")
    assert (again["tenant"], again["version"], again["max_running"]) == ("", 2, 2)
    assert (again["rate"], again["burst"]) == ("100/s", 5)
    if "type" not in name:  # The jobs of the desk are of another type.
        assert len(desk.lease()) == 2
        assert desk.json("limit", *WHERE[name])["counts"]["processing"] == 2


@each_scope
def test_all_tenants_are_paused_and_resumed(desk: Desk, name: str) -> None:
    """With a reason and an author, as one tenant is; each change is an event."""
    where = WHERE[name]
    paused = desk.run("pause", *where, "--reason", "the provider is down", "--author", "ann")
    shown = desk.json("limit", *where)
    resumed = desk.json("resume", *where, "--author", "bob", "--why", "it is back")

    assert paused.stdout == f"{name}: paused by ann: the provider is down\n"
    assert shown["paused"]["reason"] == "the provider is down"
    assert (resumed["paused"], resumed["version"]) == (None, 0)
    page = desk.use(lambda store: store.events(None, 0, 100))
    told = [one for one in page.events if one.kind is EventKind.CONFIGURED]
    assert [one.tenant for one in told] == ["", ""]
    assert "it is back" in (told[1].by or "")
    assert '"tenant"' in desk.run("events", "--json").stdout


def test_the_limits_of_the_platform_are_listed(desk: Desk) -> None:
    """Without changes: the store's, and those of queues and types."""
    assert desk.json("limit", "--platform")["scopes"] == []
    for where in WHERE.values():
        desk.run("limit", *where, "--max-running", "3")
    desk.run("limit", "acme", "--max-running", "4")

    shown = desk.run("limit", "--platform", "--show")
    told = desk.json("limit", "--platform")

    assert shown.stdout.splitlines()[0] == "the platform: max 3 running"
    assert shown.stdout.splitlines()[2:] == [
        "queue 'mail' of the platform: max 3 running",
        "type 'send_email' of the platform: max 3 running",
    ]
    assert (told["kind"], told["max_running"]) == ("platform", 3)
    assert [(one["kind"], one["name"]) for one in told["scopes"]] == [
        ("queue", "mail"),
        ("type", "send_email"),
    ]
    assert "scopes" not in desk.json("limit", "--platform", "--queue", "mail")


@pytest.mark.parametrize("tenant", [(), ("--tenant", "acme")], ids=["all", "one"])
def test_jobs_say_that_the_platform_is_paused(desk: Desk, tenant: tuple[str, ...]) -> None:
    """A pause over all tenants holds the jobs of each."""
    desk.add("a")
    desk.run("pause", "--platform", "--queue", "mail", "--reason", "down", "--author", "ann")
    desk.run("pause", "--platform", "--queue", "other", "--reason", "not this one")

    told = desk.json("jobs", *tenant)

    assert told["pauses"] == [
        {
            "tenant": "", "kind": "queue", "name": "mail",
            "reason": "down", "author": "ann", "platform": True,
        }
    ]  # fmt: skip
    assert "paused by ann: down" in desk.run("jobs", *tenant).stdout


@pytest.mark.parametrize("command", [("queues",), ("queues", "--tenant", "acme"), ("tenants",)])
def test_tables_say_that_all_tenants_are_paused(desk: Desk, command: tuple[str, ...]) -> None:
    """Nothing in their rows would say why no job starts."""
    desk.add("a")
    desk.run("limit", "--platform", "--max-running", "9")
    desk.run("pause", "--platform", "--queue", "mail", "--reason", "down", "--author", "ann")

    told = desk.run(*command).stdout.splitlines()

    assert told[-1] == "queue 'mail' of the platform: paused by ann: down"
    assert not any("max 9 running" in line for line in told)
    assert isinstance(desk.json(*command), list)


def test_a_gate_of_the_platform_is_explained_with_its_holders(desk: Desk) -> None:
    """By tenant."""
    desk.add("theirs", tenant="globex")
    desk.lease()
    desk.add("mine")
    desk.run("limit", "--platform", "--queue", "mail", "--max-running", "1")

    told = desk.json("job", "mine", "--explain")

    [gate] = [one for one in told["gates"] if one["kind"] == "limit"]
    assert gate["scope"] == {"tenant": "", "kind": "queue", "name": "mail"}
    assert gate["holders"] == ["globex: 1"]
    assert "held by globex: 1" in desk.run("job", "mine", "--explain").stdout


def test_a_type_is_known_by_the_app_or_by_the_store(desk: Desk) -> None:
    """An operator needs none of the code."""
    desk.use(lambda store: store.settings([Put("type/pay", b'{"queue": "mail"}', 0)]))

    assert desk.run("limit", "--platform", "--type", "pay", "--rate", "1/s").exit_code == 0
    assert desk.run("limit", "--platform", "--type", "send_email", "--rate", "1/s").exit_code == 0
    done = desk.run("limit", "--platform", "--type", "pai", "--rate", "1/s")
    assert (done.exit_code, "Did you mean 'pay'" in done.stderr) == (1, True), done.output


BAD: list[tuple[list[str], int, str]] = [
    (["limit", "--platform", "--max-running", "0"], 1, "max_running: is 0"),
    (["limit", "--platform", "--rate", "100"], 1, "a number and a unit"),
    (["limit", "--platform", "--weight", "2"], 1, "weight: is not a setting of the platform"),
    (["limit", "--platform", "--burst", "2"], 1, "give a rate too"),
    (["limit", "--platform", "--queue", "", "--rate", "1/s"], 1, "queue: must not be empty"),
    (["limit", "--platform", "--type", "sent_email", "--rate", "1/s"], 1, "Did you mean"),
    (["limit", "--platform", "--rate", "1/s", "--expect", "7"], 1, "[STALE_SETTING]"),
    (["limit", "acme", "--platform", "--rate", "1/s"], 2, "either a TENANT, or --platform"),
    (["limit", "--rate", "1/s"], 2, "either a TENANT, or --platform"),
    (["limit", "--platform", "--group", "g", "--rate", "1/s"], 2, "cannot be combined"),
    (["limit", "--platform", "--queue", "q", "--type", "t"], 2, "cannot be combined"),
    (["limit", "acme", "--type", "send_email", "--rate", "1/s"], 2, "only with --platform"),
    (["limit", "", "--queue", "mail", "--rate", "1/s"], 1, "tenant: must not be empty"),
    (["pause", "", "--queue", "mail", "--reason", "x"], 1, "tenant: must not be empty"),
    (["pause", "--platform"], 2, "--reason"),
    (["pause", "--platform", "--type", "nil", "--reason", "x"], 1, "no app has registered"),
    (["resume", "--platform", "--type", "sent_email"], 1, "Did you mean 'send_email'"),
    (["resume"], 2, "either a TENANT, or --platform"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), BAD, ids=str)
def test_bad_input_for_all_tenants_is_told_and_changes_nothing(
    desk: Desk, arguments: list[str], code: int, words: str
) -> None:
    """An error of ours is 1, a command not understood is 2."""
    done = desk.run(*arguments)

    assert (done.exit_code, words in done.stderr) == (code, True), done.output
    assert desk.use(lambda store: store.settings(under="scope/")) == []


def test_a_store_without_these_limits_says_so_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its code, before anything is changed."""
    app = App("memory://")
    inner: Any = app.store.inner
    less = msgspec.structs.replace(inner.capabilities, platform=False)
    monkeypatch.setattr(inner, "capabilities", less)
    module = types.ModuleType("desk_less")
    vars(module)["app"] = app
    monkeypatch.setitem(sys.modules, "desk_less", module)
    for arguments in (["limit", "--platform", "--rate", "1/s"], ["limit", "--platform"]):
        done = CliRunner().invoke(cli, [*arguments, "--app", "desk_less:app"])
        assert (done.exit_code, "[STORE_UNSUPPORTED]" in done.stderr) == (1, True), done.output
