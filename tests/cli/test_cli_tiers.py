"""`holdfast tier`, and `holdfast limit --tier`: what tenants have unless they have their own."""

from __future__ import annotations

import sys
import types

import pytest
from tests.cli.test_cli_scopes import Desk

from holdfast import App


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    module = types.ModuleType("desk_tiers")
    app = App("memory://")
    vars(module)["app"] = app
    monkeypatch.setitem(sys.modules, "desk_tiers", module)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv("HOLDFAST_APP", "desk_tiers:app")
    return Desk(app)


def test_a_tier_is_set_shown_and_deleted(desk: Desk) -> None:
    """With every kind of value."""
    said = desk.run(
        *("tier", "pro", "--max-running", "5", "--rate", "9/s", "--burst", "3", "--weight", "2"),
        *("--max-queued", "7", "--queue-max-running", "4", "--group-rate", "1/m"),
        *("--ceiling-running", "6"),
    )
    found = desk.json("tier", "pro")
    gone = desk.run("tier", "pro", "--delete")

    assert said.exit_code == 0, said.output
    assert said.stdout == (
        "tier 'pro': max 5 running and 9/s burst 3, weight 2, max 7 queued, "
        "each queue: max 4 running, each group: 1/m, ceiling: max 6 running\n"
    )
    assert (found["tier"], found["version"], found["max_running"]) == ("pro", 1, 5)
    assert found["queue"] == {"max_running": 4, "rate": None, "burst": None}
    assert found["ceiling"]["max_running"] == 6
    assert gone.stdout == "tier 'pro': nothing\n"
    assert desk.json("tier") == {"tiers": []}


def test_the_defaults_and_all_tiers_are_listed(desk: Desk) -> None:
    """The defaults first."""
    desk.run("tier", "pro", "--weight", "2")
    desk.run("tier", "--defaults", "--max-running", "3")

    listed = desk.run("tier")

    assert listed.stdout == "defaults: max 3 running\ntier 'pro': weight 2\n"
    assert [each["tier"] for each in desk.json("tier")["tiers"]] == ["", "pro"]


def test_a_value_is_removed_by_none(desk: Desk) -> None:
    """Others stay."""
    desk.run("tier", "--defaults", "--max-running", "3", "--weight", "2")

    desk.run("tier", "--defaults", "--max-running", "none")

    found = desk.json("tier", "--defaults")
    assert (found["max_running"], found["weight"], found["version"]) == (None, 2, 2)


def test_a_tenant_is_put_into_a_tier_and_told_what_counts(desk: Desk) -> None:
    """Each value with its layer."""
    desk.run("tier", "--defaults", "--max-running", "3", "--rate", "9/s")
    desk.run("tier", "pro", "--max-running", "5")

    said = desk.run("limit", "acme", "--tier", "pro")
    effective = desk.json("limit", "acme")["effective"]

    assert said.exit_code == 0, said.output
    assert "tier pro" in said.stdout.splitlines()[0]
    assert "from tier pro: max_running 5" in said.stdout
    assert "from platform: rate 9/s" in said.stdout
    assert effective["max_running"] == {"value": 5, "layer": "tier pro"}
    assert effective["max_bytes"] == {"value": None, "layer": "built-in"}
    assert desk.json("limit", "acme", "--tier", "none")["tier"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("tier", "--max-running", "3"), 2, "--defaults"),
        (("tier", "pro", "--defaults"), 2, "not both"),
        (("tier", "pro", "--delete", "--weight", "2"), 2, "--delete"),
        (("tier", "--delete"), 2, "name a tier"),
        (("tier", "pro", "--delete"), 1, "no tier 'pro'"),
        (("tier", "pro", "--max-running", "0"), 1, "max_running"),
        (("tier", "pro", "--rate", "100"), 1, "100/s"),
        (("limit", "acme", "--tier", "pro"), 1, "no tier 'pro'"),
        (("limit", "acme", "--queue", "mail", "--tier", "pro"), 1, "tenant"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_wrong_call_changes_nothing(
    desk: Desk, arguments: tuple[str, ...], code: int, word: str
) -> None:
    """And says what is wrong."""
    said = desk.run(*arguments)

    assert (said.exit_code, word in said.output) == (code, True), said.output
    assert desk.json("tier") == {"tiers": []}
