"""The commands that look: jobs, job, queues, tenants, workers, events."""

from __future__ import annotations

import json
import signal
from typing import Any

import msgspec
import pytest

from holdfast.core.job import Reason, State
from holdfast.store import Take
from holdfast.testing.contract import builders

TOKEN_MARK = "secret"
"""The nonce of every claim made here: no output may contain it."""


def test_jobs_lists_the_newest_first_and_says_how_to_go_on(run: Any, shelf: Any) -> None:
    """A page is a table and the cursor of the next one."""
    for id in ("one", "two", "three"):
        shelf.add(id)

    first = run("jobs", "--limit", "2")
    cursor = first.stdout.split("--after ")[1].strip()
    second = run("jobs", "--limit", "2", "--after", cursor)

    assert first.exit_code == second.exit_code == 0
    assert first.stdout.index("three") < first.stdout.index("two")
    assert "one" not in first.stdout
    assert "one" in second.stdout
    assert "--after" not in second.stdout


def test_jobs_as_json_is_one_document_with_its_cursor(run: Any, shelf: Any) -> None:
    """Programs page by the cursor until it is null."""
    shelf.add("one", tags=("red",), group="g1", key="k1")
    shelf.add("two")

    page = json.loads(run("jobs", "--json", "--oldest-first", "--limit", "1").stdout)

    [job] = page["jobs"]
    assert (job["id"], job["tags"], job["group"], job["key"]) == ("one", ["red"], "g1", "k1")
    assert job["created_at"].endswith("Z")
    rest = json.loads(
        run("jobs", "--json", "--oldest-first", "--after", str(page["cursor"])).stdout
    )
    assert [job["id"] for job in rest["jobs"]] == ["two"]
    assert rest["cursor"] is None


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--tenant", "globex"), {"g"}),
        (("--queue", "mail"), {"q"}),
        (("--type", "other"), {"t"}),
        (("--tag", "red"), {"r"}),
        (("--group", "g1"), {"u"}),
        (("--state", "scheduled"), {"later"}),
        (("--queue", "mail", "--type", "other"), set()),
        (("--since", "1h", "--tenant", "globex"), {"g"}),
        (("--before", "1h"), set()),
        (("--since", "2999-01-01T00:00:00Z"), set()),
    ],
)
def test_each_filter_of_jobs_narrows(
    run: Any, shelf: Any, filters: tuple[str, ...], found: set[str]
) -> None:
    """Filters are joined by and."""
    shelf.add("g", tenant="globex")
    shelf.add("q", queue="mail")
    shelf.add("t", type="other")
    shelf.add("r", tags=("red", "blue"))
    shelf.add("u", group="g1")
    shelf.add("later", delay_us=3_600_000_000)

    page = json.loads(run("jobs", "--json", *filters).stdout)

    assert {job["id"] for job in page["jobs"]} == found


def test_jobs_of_an_empty_store_says_so(run: Any) -> None:
    """An empty table would leave one wondering."""
    assert run("jobs").stdout == "no jobs\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("jobs", "--since", "yesterday"), "is not an instant"),
        (("jobs", "--since", "2026-01-01T00:00:00"), "has no time zone"),
        (("jobs", "--state", "done"), "'done' is not one of"),
        (("jobs", "--reason", "BORED"), "'BORED' is not one of"),
        (("jobs", "--limit", "0"), "not in the range"),
        (("jobs", "--after", "x"), "not a valid integer"),
        (("job",), "Missing argument 'ID'"),
        (("events", "--after", "-2"), "not in the range"),
        (("cancel", "x"), "Missing option '--tenant'"),
        (("cancel", "--tenant", "acme"), "give IDs or --group"),
        (("completion", "tcsh"), "'tcsh' is not one of"),
        (("queues", "--what"), "No such option"),
        (("dance",), "No such command 'dance'"),
    ],
)
def test_what_is_not_understood_is_a_usage_error(
    run: Any, arguments: tuple[str, ...], words: str
) -> None:
    """Exit code 2, and the option is named."""
    result = run(*arguments)

    assert result.exit_code == 2
    assert words in result.stderr


KNOWN = (
    "fdb://, http://, https://, memory://, postgres://, postgresql://, redis://, redis+cluster://,"
    " rediss://, rediss+cluster://, sqlite://"
)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("--store", "foo://x", "jobs"),
            f"holdfast: no store handles 'foo' (known: {KNOWN}). [UNKNOWN_STORE]",
        ),
        (
            ("jobs", "--store", "sqlit:///x"),
            f"holdfast: no store handles 'sqlit' (known: {KNOWN})."
            " Did you mean 'sqlite'? [UNKNOWN_STORE]",
        ),
        (("jobs", "--tenant", ""), "holdfast: tenant: must not be empty [INVALID_INPUT]"),
        (
            ("jobs", "--queue", " x"),
            "holdfast: queue: has control characters, or spaces at its ends [INVALID_INPUT]",
        ),
        (("cancel", "--tenant", "", "x"), "holdfast: tenant: must not be empty [INVALID_INPUT]"),
    ],
)
def test_our_errors_are_one_line_with_a_code(
    run: Any, arguments: tuple[str, ...], line: str
) -> None:
    """Exit code 1, never a traceback."""
    result = run(*arguments)

    assert result.exit_code == 1
    assert result.stderr.strip() == line
    assert result.stdout == ""


def test_job_tells_the_whole_story(run: Any, shelf: Any) -> None:
    """Record, payload, result and what happened when."""
    shelf.add("one", tags=("red",))
    [lease] = shelf.lease()
    shelf.settle(lease, State.COMPLETED, result=b'{"sent":1}')

    told = run("job", "one").stdout
    data = json.loads(run("job", "one", "--tenant", "acme", "--json").stdout)

    assert all(word in told for word in ("completed", '"name": "Ada"', '"sent": 1', "red", "w1"))
    assert data["payload"] == {"name": "Ada"}
    assert data["result"] == {"sent": 1}
    assert [event["kind"] for event in data["events"]] == ["enqueued", "leased", "completed"]
    assert not data["events_lost"]


def test_an_unknown_job_is_not_found(run: Any, shelf: Any) -> None:
    """Exit code 3, also for another tenant's job."""
    shelf.add("one")

    for arguments in (("job", "nope"), ("job", "one", "--tenant", "globex")):
        result = run(*arguments)
        assert result.exit_code == 3
        assert result.stderr == f"holdfast: job {arguments[1]!r}: not found [JOB_NOT_FOUND]\n"


def test_an_id_of_several_tenants_needs_the_tenant(run: Any, shelf: Any) -> None:
    """An id names a job only within its tenant."""
    shelf.add("one")
    shelf.add("one", tenant="globex")

    result = run("job", "one")

    assert result.exit_code == 1
    assert "several tenants have a job 'one'" in result.stderr
    assert json.loads(run("job", "one", "--tenant", "globex", "--json").stdout)["id"] == "one"


def test_an_error_text_cannot_command_the_terminal(run: Any, shelf: Any) -> None:
    """What handlers wrote is shown, not obeyed."""
    shelf.add("one")
    [lease] = shelf.lease()
    shelf.settle(lease, State.FAILED, reason=Reason.PERMANENT, error="bad \x1b[2J[red]news[/red]")

    for arguments in (("job", "one"), ("jobs",), ("events",)):
        told = run(*arguments).stdout
        assert "\x1b" not in told
        assert "[red]news[/red]" in told


def test_lease_tokens_are_never_shown(run: Any, shelf: Any) -> None:
    """Whoever reads a screen or a log must not be able to settle a job."""
    shelf.add("one")
    [lease] = shelf.lease()
    assert TOKEN_MARK in lease.token

    for arguments in (("jobs",), ("job", "one"), ("events",)):
        for form in ((), ("--json",)):
            result = run(*arguments, *form)
            assert "one" in result.stdout
            assert TOKEN_MARK not in result.output


def test_queues_and_tenants_count_by_state(run: Any, shelf: Any) -> None:
    """Each state has its number, and the longest wait is told."""
    shelf.add("a1")
    shelf.add("a2", queue="mail")
    shelf.add("g1", tenant="globex", delay_us=3_600_000_000)

    queues = json.loads(run("queues", "--json").stdout)
    tenants = json.loads(run("tenants", "--json").stdout)
    only = json.loads(run("queues", "--json", "--tenant", "globex").stdout)

    assert [(one["tenant"], one["queue"]) for one in queues] == [
        ("acme", "default"),
        ("acme", "mail"),
        ("globex", "default"),
    ]
    assert [one["tenant"] for one in only] == ["globex"]
    acme, globex = tenants
    assert (acme["queues"], acme["counts"]["enqueued"]) == (2, 2)
    assert acme["oldest_at"] is not None
    assert (globex["counts"]["scheduled"], globex["oldest_at"]) == (1, None)
    assert "oldest wait" in run("queues").stdout
    assert "globex" in run("tenants").stdout


def test_workers_shows_who_is_present_and_who_leads(run: Any, shelf: Any) -> None:
    """Also when nobody is there, and when a note cannot be read."""
    empty = run("workers").stdout
    note = '{"pid":7,"tenants":null,"queues":["mail"],"concurrency":10,"running":3,"held":5}'
    takes = [
        Take("worker/w1", "w1", 60_000_000, note),
        Take("worker/w2", "w2", 60_000_000, "?"),
        Take("upkeep", "w1", 60_000_000, '{"rescue_lag_s":1.5,"rescued":4,"pruned":2}'),
    ]
    shelf.use(lambda store: store.hold(takes))

    told = run("workers").stdout
    data = json.loads(run("workers", "--json").stdout)

    assert empty == "no worker is present\nupkeep: no leader\n"
    assert "3/10" in told
    assert "upkeep: led by w1, lag 1.5 s, 4 rescued, 2 pruned" in told
    assert [one["name"] for one in data["workers"]] == ["w1", "w2"]
    assert data["workers"][0]["held"] == 5
    assert data["upkeep"]["rescue_lag_s"] == 1.5


def test_events_are_lines_from_any_cursor(run: Any, shelf: Any) -> None:
    """JSON lines for programs, one readable line each for people."""
    shelf.add("one")
    shelf.add("two", tenant="globex")
    shelf.lease()

    lines = [json.loads(line) for line in run("events", "--json").stdout.splitlines()]

    assert [(one["job_id"], one["kind"]) for one in lines] == [
        ("one", "enqueued"),
        ("two", "enqueued"),
        ("one", "leased"),
    ]
    after = str(lines[0]["cursor"])
    assert len(run("events", "--after", after).stdout.splitlines()) == 2
    assert len(run("events", "--tenant", "globex").stdout.splitlines()) == 1
    assert len(run("events", "--job", "one").stdout.splitlines()) == 2
    assert run("events", "--after", "-1").stdout == ""


def test_a_gap_in_the_events_is_told(run: Any, shelf: Any) -> None:
    """A reader whose place was pruned must know that something is missing."""
    shelf.add("one")
    shelf.use(lambda store: store.prune(100, 0))
    shelf.add("two")

    assert run("events").stdout.startswith("-- gap: events before cursor")
    first = json.loads(run("events", "--json").stdout.splitlines()[0])
    assert first["gap"] is True


def test_following_tells_each_new_event_until_interrupted(
    start: Any, shelf: Any, until: Any
) -> None:
    """Old ones are not repeated; Ctrl-C is the normal end of it."""
    shelf.add("old")
    reader = start("events", "--follow", "--after", "1")

    shelf.add("new")
    until(lambda: "new" in reader.said())
    reader.signal(signal.SIGINT)

    assert reader.ended() == 0
    assert "old" not in reader.said()
    assert "Traceback" not in reader.said()


def test_cancel_answers_for_each_job(run: Any, shelf: Any) -> None:
    """Done, not found and too late are told apart; the worst decides the exit code."""
    shelf.add("done")
    [lease] = shelf.lease()
    shelf.settle(lease, State.COMPLETED)
    shelf.add("one")
    shelf.add("two")

    good = run("cancel", "one", "--tenant", "acme")
    late = run("cancel", "done", "--tenant", "acme")
    mixed = run("cancel", "two", "done", "nope", "--tenant", "acme")

    assert (good.exit_code, good.stdout) == (0, "canceled one\n")
    assert (late.exit_code, late.stderr) == (
        1,
        "holdfast: job 'done': already finished [JOB_TERMINAL]\n",
    )
    assert mixed.exit_code == 3
    assert mixed.stdout == "canceled two\n"
    assert "job 'nope': not found [JOB_NOT_FOUND]" in mixed.stderr
    assert shelf.get("two").state is State.CANCELED


@pytest.mark.parametrize("depth", [100, 800])
def test_a_deep_payload_is_shown_in_bounds(run: Any, shelf: Any, depth: int) -> None:
    """Its indents would fill the screen, and the memory, for minutes."""
    one = b"[" * depth + b"]" * depth
    body = b"[" + b",".join([one] * (200_000 // len(one))) + b"]"
    shelf.use(lambda store: store.enqueue([builders.job("deep", body=body)]))
    as_json = builders.job("json", body=body)
    sealed = msgspec.structs.replace(as_json.envelope, codec="json")
    new = msgspec.structs.replace(as_json, envelope=sealed)
    shelf.use(lambda store: store.enqueue([new]))

    for id in ("deep", "json"):
        shown, told = run("job", id), run("job", id, "--json")
        assert (shown.exit_code, told.exit_code) == (0, 0)
        assert len(shown.stdout) < 1_000_000
        assert json.loads(told.stdout)["id"] == id
