"""Commands of an operator: priorities, times, dead letters by time of failure, and who did it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core.job import State

SIGN = ("--author", "ann", "--why", "wrong address")


def signatures(run: Any) -> dict[str, str | None]:
    """Who signed the last event of each kind."""
    lines = run("events", "--json").stdout.splitlines()
    return {event["kind"]: event["by"] for event in map(json.loads, lines)}


def test_every_act_is_signed_in_its_event(run: Any, shelf: Any) -> None:
    """By the author and the reason that were given."""
    shelf.bury("dead", "gone")
    for id in ("one", "two", "three"):
        shelf.add(id, queue="mail")
    for command in (
        ("cancel", "one", "--tenant", "acme"),
        ("job", "reprioritise", "two", "5"),
        ("dead", "replay", "dead"),
        ("dead", "purge", "gone", "--yes"),
        ("limit", "acme", "--max-running", "3"),
    ):
        result = run(*command, *SIGN)
        assert result.exit_code == 0, result.output

    found = signatures(run)
    kinds = ("canceled", "changed", "replayed", "deleted", "configured")
    assert {kind: found[kind] for kind in kinds} == dict.fromkeys(kinds, "ann: wrong address")


def test_the_user_of_the_shell_signs_where_nobody_is_named(
    run: Any, shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An act without an author is nobody's."""
    monkeypatch.setenv("LOGNAME", "bea")
    shelf.add("one")

    run("cancel", "one", "--tenant", "acme")

    assert signatures(run)["canceled"] == "bea"


def test_a_resume_is_signed(run: Any, shelf: Any) -> None:
    """As its pause is."""
    shelf.add("one", queue="mail")
    run("pause", "acme", "--queue", "mail", "--reason", "hot", "--author", "ann")
    run("resume", "acme", "--queue", "mail", *SIGN)

    assert signatures(run)["configured"] == "ann: wrong address"


def test_a_waiting_job_is_reprioritised_and_rescheduled(run: Any, shelf: Any) -> None:
    """One that has ended is not."""
    shelf.add("one")
    shelf.bury("dead", priority=9)
    at = datetime.now(UTC) + timedelta(hours=2)

    raised = run("job", "reprioritise", "one", "7", "--tenant", "acme")
    later = run("job", "reschedule", "one", "--run-at", at.isoformat())
    refused = run("job", "reprioritise", "dead", "7")
    both = run("job", "reschedule", "one")

    job = shelf.get("one")
    assert (raised.exit_code, later.exit_code) == (0, 0), later.output
    assert (job.priority, job.state) == (7, State.SCHEDULED)
    assert "cannot be changed while failed" in refused.stderr
    assert "use --delay or --run-at" in both.stderr
    assert run("job", "reschedule", "one", "--delay", "0").exit_code == 0
    assert shelf.get("one").state is State.ENQUEUED


def test_dead_letters_are_found_by_the_time_of_their_failure(run: Any, shelf: Any) -> None:
    """For lists, replays and purges."""
    shelf.bury("one")

    def found(*options: str) -> list[str]:
        page = json.loads(run("dead", "list", "--json", *options).stdout)
        return [job["id"] for job in page["jobs"]]

    assert found("--failed-since", "1h") == ["one"]
    assert found("--failed-before", "1h") == []
    assert run("dead", "replay", "--failed-before", "1h").stdout == "0 dead letters replayed\n"
    assert run("dead", "replay", "--failed-since", "1h").stdout == "1 dead letter replayed\n"


def test_a_job_is_shown_by_its_id_alone(run: Any, shelf: Any) -> None:
    """Also one with the name of a command."""
    shelf.add("one")
    shelf.add("reschedule")

    assert json.loads(run("job", "one", "--json").stdout)["id"] == "one"
    assert json.loads(run("job", "show", "reschedule", "--json").stdout)["id"] == "reschedule"
