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
    assert gone.stdout == "tier 'pro': deleted\n"
    assert desk.json("tier") == {"tiers": []}
    assert desk.run("tier").stdout == "no tiers and no defaults\n"


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
    assert "from the defaults: rate 9/s" in said.stdout
    assert effective["max_running"] == {"value": 5, "layer": "tier pro", "ceiling": False}
    assert effective["max_bytes"] == {"value": None, "layer": "built-in", "ceiling": False}
    assert desk.json("limit", "acme", "--tier", "none")["tier"] is None


def test_a_ceiling_that_counts_is_told(desk: Desk) -> None:
    """The tenant's own value is above it."""
    desk.run("tier", "--defaults", "--ceiling-running", "4")
    desk.run("tier", "pro", "--ceiling-running", "6")

    mine = desk.run("limit", "acme", "--max-running", "9")
    more = desk.json("limit", "acme", "--tier", "pro")["effective"]

    assert "from the ceiling of the defaults: max_running 4" in mine.stdout
    assert more["max_running"] == {"value": 6, "layer": "tier pro", "ceiling": True}


@pytest.mark.parametrize("option", [("--max-running", "3"), (), ("--delete",), ("--json",)])
def test_an_empty_name_is_not_the_defaults(desk: Desk, option: tuple[str, ...]) -> None:
    """A shell variable that is not set would change what all tenants have."""
    said = desk.run("tier", "", *option)

    assert (said.exit_code, "tier: must not be empty" in said.output) == (1, True), said.output
    assert desk.json("tier") == {"tiers": []}


def test_a_misspelt_tier_is_not_shown_as_an_empty_one(desk: Desk) -> None:
    """With the name that was meant."""
    desk.run("tier", "pro", "--max-running", "5")

    said = desk.run("tier", "prro")

    assert said.exit_code == 1
    assert "there is no tier 'prro'. Did you mean 'pro'?" in said.output


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("tier", "--max-running", "3"), 2, "--defaults"),
        (("tier", "pro", "--defaults"), 2, "not both"),
        (("tier", "pro", "--delete", "--weight", "2"), 2, "--delete"),
        (("tier", "--delete"), 2, "name a tier"),
        (("tier", "none", "--weight", "2"), 2, "means no tier"),
        (("tier", "pro", "--delete"), 1, "no tier 'pro'"),
        (("tier", "pro", "--max-running", "0"), 1, "max_running"),
        (("tier", "pro", "--rate", "100"), 1, "100/s"),
        (("tier", "pro", "--queue-rate", "100"), 1, "queue.rate: is '100'"),
        (("tier", "pro", "--group-max-running", "0"), 1, "group.max_running: is 0"),
        (("tier", "pro", "--max-running", "9", "--ceiling-running", "8"), 1, "is 9, above the"),
        (("tier", "--defaults", "--rate", "9/s", "--ceiling-rate", "8/s"), 1, "is 9/s, above the"),
        (("tier", "pro"), 1, "no tier 'pro'"),
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
