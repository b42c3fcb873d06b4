"""`holdfast dead`: list, show, replay, purge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.job import Reason, State


def test_list_shows_only_dead_letters(run: Any, shelf: Any) -> None:
    """With their error; filters narrow."""
    shelf.bury("dead1", "dead2")
    shelf.bury("dead3", tenant="globex")
    shelf.add("alive")

    told = run("dead", "list").stdout
    data = json.loads(run("dead", "list", "--json", "--tenant", "globex").stdout)

    assert "dead1" in told
    assert "alive" not in told
    assert "ValueError: no good" in told
    assert [job["id"] for job in data["jobs"]] == ["dead3"]


def test_an_empty_list_says_so(run: Any) -> None:
    """No news is told as good news."""
    assert run("dead", "list").stdout == "no dead letters\n"


def test_show_tells_the_story_of_one(run: Any, shelf: Any) -> None:
    """As `job` does; not found is exit code 3."""
    shelf.bury("dead1")

    assert "ValueError: no good" in run("dead", "show", "dead1").stdout
    assert json.loads(run("dead", "show", "dead1", "--json").stdout)["state"] == "failed"
    assert run("dead", "show", "nope").exit_code == 3


def test_replay_makes_a_new_job_once(run: Any, shelf: Any) -> None:
    """The dead letter stays and names its replay."""
    shelf.bury("dead1", "dead2")

    first = run("dead", "replay", "dead1")
    again = run("dead", "replay", "dead1")

    assert first.stdout == "1 dead letter replayed\n"
    assert again.stdout == "0 dead letters replayed\n"
    [replay] = [job for job in shelf.all() if job.state is State.ENQUEUED]
    assert replay.origin == "dead1"
    assert shelf.get("dead1").replayed_as == replay.id


def test_replay_of_all_by_filter_counts(run: Any, shelf: Any) -> None:
    """--json tells the number to programs."""
    shelf.bury("dead1", "dead2", queue="mail")
    shelf.bury("dead3")

    some = json.loads(run("dead", "replay", "--queue", "mail", "--json").stdout)
    rest = json.loads(run("dead", "replay", "--all", "--json").stdout)

    assert some == {"replayed": 2, "dry_run": False}
    assert rest == {"replayed": 1, "dry_run": False}


def test_a_dry_run_changes_nothing(run: Any, shelf: Any) -> None:
    """It says how many it would be."""
    shelf.bury("dead1", "dead2")

    replay = run("dead", "replay", "--all", "--dry-run")
    purge = run("dead", "purge", "dead1", "--dry-run")

    assert replay.stdout == "2 dead letters would be replayed\n"
    assert purge.stdout == "1 dead letter would be purged\n"
    assert [job.id for job in shelf.all()] == ["dead1", "dead2"]


def test_purge_deletes_for_good_and_only_dead_letters(run: Any, shelf: Any) -> None:
    """Jobs that wait are not touched, whatever the selection."""
    shelf.bury("dead1")
    shelf.add("alive")

    assert run("dead", "purge", "--all", "--yes").stdout == "1 dead letter purged\n"
    assert [job.id for job in shelf.all()] == ["alive"]


def test_purge_asks_before_it_deletes(run: Any, shelf: Any) -> None:
    """With nobody to ask, --yes is needed."""
    shelf.bury("dead1")

    result = run("dead", "purge", "--all")

    assert result.exit_code == 2
    assert "1 dead letter would be deleted: confirm with --yes" in result.stderr
    assert shelf.get("dead1").state is State.FAILED


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 1)])
def test_purge_does_what_the_answer_says(
    run: Any, shelf: Any, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    """The question names the number."""
    monkeypatch.setattr("holdfast.cli.dead.somebody_there", lambda: True)
    shelf.bury("dead1")

    result = run("dead", "purge", "--all", stdin=answer)

    assert "Delete 1 dead letter permanently?" in result.output
    assert result.exit_code == left
    assert len(shelf.all()) == left


def test_purge_by_reason_and_age(run: Any, shelf: Any) -> None:
    """The filters of list choose here too."""
    shelf.add("dead1")
    [lease] = shelf.lease()
    shelf.settle(lease, State.FAILED, reason=Reason.TIMEOUT, error="late")
    shelf.bury("dead2")

    assert run("dead", "purge", "--reason", "timeout", "--before", "1h", "-y").stdout[0] == "0"
    assert run("dead", "purge", "--reason", "timeout", "-y").stdout[0] == "1"
    assert [job.id for job in shelf.all()] == ["dead2"]


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_a_deed_needs_a_choice(run: Any, verb: str) -> None:
    """Nothing said is not everything."""
    result = run("dead", verb)

    assert result.exit_code == 2
    assert "no dead letters selected" in result.stderr


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_an_id_that_is_no_dead_letter_is_not_found(run: Any, shelf: Any, verb: str) -> None:
    """Then nothing is done at all."""
    shelf.bury("dead1")
    shelf.add("alive")

    result = run("dead", verb, "dead1", "alive", "nope")

    assert result.exit_code == 3
    assert "alive, nope" in result.stderr
    assert len(shelf.all()) == 2
