"""`holdfast enqueue`: raw and typed payloads, options, many lines."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.core.clock import instant
from holdfast.core.job import State


def payload(shelf: Any, id: str) -> object:
    return json.loads(shelf.get(id).envelope.body)


def test_a_raw_payload_is_enqueued_without_the_code_of_its_type(run: Any, shelf: Any) -> None:
    """The id is all of stdout, for scripts."""
    result = run("enqueue", "send", '{"to": "a@b.c"}', "--tenant", "acme")

    job = shelf.get(result.stdout.strip())
    assert (result.exit_code, "no app has published" in result.stderr) == (0, True)
    assert (job.type, job.envelope.codec, job.envelope.version) == ("send", "json", 1)
    assert payload(shelf, job.id) == {"to": "a@b.c"}


def test_a_published_type_gives_its_queue_and_rules(run: Any, shelf: Any) -> None:
    """What the command does not say, the app that knows the type has said."""
    app = App(shelf.url)

    @app.job(queue="mail", priority=3, max_attempts=7, timeout=30)
    async def send(ctx: Context, to: str) -> None: ...

    asyncio.run(opened_once(app))

    plain = run("enqueue", "send", "{}", "--tenant", "acme", "--id", "one", "--json")
    run("enqueue", "send", "--tenant", "acme", "--id", "two", "--queue", "q", "--max-attempts", "2")
    run("enqueue", "send", "--tenant", "acme", "--lines", stdin="{}")
    typo = run("enqueue", "sendd", "--tenant", "acme")

    one, two, three = (shelf.get(id) for id in ("one", "two", shelf.all()[2].id))
    assert (plain.stderr, json.loads(plain.stdout)["type_known"]) == ("", True)
    assert (one.queue, one.priority, one.max_attempts) == ("mail", 3, 7)
    assert one.rules.timeout_us == 30_000_000
    assert (two.queue, two.priority, two.max_attempts) == ("q", 3, 2)
    assert (three.queue, three.max_attempts) == ("mail", 7)
    assert "Did you mean 'send'?" in typo.stderr


async def opened_once(app: App) -> None:
    async with app:
        pass


def test_a_payload_comes_from_stdin_a_file_or_nowhere(run: Any, shelf: Any, tmp_path: Path) -> None:
    """`-`, `@file`, and an empty one by default."""
    file = tmp_path / "payload.json"
    file.write_text('{"a": 2}')

    run("enqueue", "t", "-", "--tenant", "acme", "--id", "one", stdin='{"a": 1}')
    run("enqueue", "t", f"@{file}", "--tenant", "acme", "--id", "two")
    run("enqueue", "t", "--tenant", "acme", "--id", "three")

    assert [payload(shelf, id) for id in ("one", "two", "three")] == [{"a": 1}, {"a": 2}, {}]


def test_every_option_reaches_the_job(run: Any, shelf: Any) -> None:
    """Lengths take units."""
    options = (
        *("--queue", "mail", "--key", "k1", "--delay", "5m", "--priority", "7", "--group", "g1"),
        *("--tag", "red", "--tag", "blue", "--ttl", "2h", "--id", "one", "--max-attempts", "9"),
    )

    result = run("enqueue", "t", "--tenant", "acme", *options, "--json")

    answer = json.loads(result.stdout)
    job = shelf.get("one")
    assert answer == {
        "id": "one",
        "created": True,
        "tenant": "acme",
        "queue": "mail",
        "type": "t",
        "type_known": False,
    }
    assert (job.queue, job.key, job.priority, job.group) == ("mail", "k1", 7, "g1")
    assert (set(job.tags), job.max_attempts, job.state) == ({"red", "blue"}, 9, State.SCHEDULED)
    assert job.run_at - job.created_at == 300_000_000
    assert job.expires_at is not None


def test_run_at_is_an_instant_with_its_zone(run: Any, shelf: Any) -> None:
    """Two clocks on two walls may differ, the instant does not."""
    run("enqueue", "t", "--tenant", "a", "--id", "one", "--run-at", "2199-01-01T02:00:00+02:00")

    assert shelf.get("one").run_at == instant(datetime.fromisoformat("2199-01-01T00:00:00Z"))


def test_a_repeated_key_gives_the_first_job(run: Any) -> None:
    """And says so."""
    first = run("enqueue", "t", "--tenant", "acme", "--key", "k1")
    second = run("enqueue", "t", "--tenant", "acme", "--key", "k1")
    third = run("enqueue", "t", "--tenant", "acme", "--key", "k1", "--json")

    assert second.stdout == first.stdout
    assert "already existed" in second.stderr
    assert json.loads(third.stdout)["created"] is False


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("t",), "Missing option '--tenant'", 2),
        (("t", "--tenant", "a", "--delay", "soon"), "is not a duration", 2),
        (("t", "--tenant", "a", "--run-at", "2026-01-01T00:00:00"), "has no time zone", 2),
        (("t", "--tenant", "a", "--run-at", "noon"), "is not an instant", 2),
        (("t", "--tenant", "a", "--priority", "high"), "not a valid integer", 2),
        (("t", "{}", "--tenant", "a", "--lines"), "--lines reads the payloads from stdin", 2),
        (("t", "--tenant", "a", "--lines", "--key", "k"), "cannot be used with --lines", 2),
        (("t", "{", "--tenant", "a"), "payload: is not JSON", 1),
        (("t", '{"x": NaN}', "--tenant", "a"), "payload: is not JSON", 1),
        (("t", "[1]", "--tenant", "a"), "must be a JSON object, for example {}, not a list", 1),
        (("t", "null", "--tenant", "a"), "must be a JSON object, for example {}, not null", 1),
        (("t", "@/no/such/file", "--tenant", "a"), "cannot read '/no/such/file'", 1),
        (("", "--tenant", "a"), "type: must not be empty", 1),
        (("t", "--tenant", ""), "tenant: must not be empty", 1),
        (("t", "--tenant", "a", "--max-attempts", "0"), "max_attempts: is 0", 1),
        (("t", "--tenant", "a", "--delay", "1", "--run-at", "2199-01-01T00:00:00Z"), "not both", 1),
    ],
)
def test_bad_input_is_named(run: Any, arguments: tuple[str, ...], words: str, code: int) -> None:
    """And nothing is enqueued."""
    result = run("enqueue", *arguments)

    assert words in result.stderr
    assert result.exit_code == code
    assert run("jobs").stdout == "no jobs\n"


def test_a_payload_that_is_too_large_is_refused(run: Any) -> None:
    """The limit is told."""
    result = run("enqueue", "t", "-", "--tenant", "a", stdin=json.dumps({"x": "y" * 300_000}))

    assert result.exit_code == 1
    assert "[PAYLOAD_TOO_LARGE]" in result.stderr


@pytest.mark.usefixtures("in_shop")
def test_with_an_app_the_type_checks_the_payload(run: Any, shelf: Any) -> None:
    """Bad arguments fail here, not in the worker."""
    call = ("--app", "shop:app", "--tenant", "acme")

    good = run("enqueue", "greet", '{"name": "Ada"}', *call)
    bad = run("enqueue", "greet", '{"name": 1}', *call)
    extra = run("enqueue", "greet", '{"name": "Ada", "age": 3}', *call)
    unknown = run("enqueue", "gret", "{}", *call)

    assert payload(shelf, good.stdout.strip()) == {"name": "Ada", "times": 1}
    assert (bad.exit_code, extra.exit_code, unknown.exit_code) == (1, 1, 1)
    assert "[INVALID_PAYLOAD]" in bad.stderr
    assert "age" in extra.stderr
    assert "Did you mean 'greet'? [TYPE_UNKNOWN]" in unknown.stderr


def test_lines_enqueues_one_job_each(run: Any, shelf: Any) -> None:
    """More lines than one batch holds; empty ones do not count."""
    lines = "".join(f'{{"n": {number}}}\n' for number in range(450)) + "\n\n"

    result = run("enqueue", "t", "--tenant", "acme", "--lines", "--tag", "bulk", stdin=lines)

    assert result.stdout == "450 jobs enqueued, 0 already existed\n"
    [queue] = json.loads(run("queues", "--json").stdout)
    assert queue["counts"]["enqueued"] == 450
    assert shelf.all()[0].tags == ("bulk",)


def test_a_bad_line_is_named_by_its_number(run: Any) -> None:
    """What was sent before it stays, and its number is told."""
    result = run("enqueue", "t", "--tenant", "a", "--lines", stdin='{"n": 1}\n\n{"n": \n')

    assert result.exit_code == 1
    assert "holdfast: line 3: is not JSON" in result.stderr
    assert "0 jobs enqueued before this line" in result.stderr


@pytest.mark.usefixtures("in_shop")
def test_a_line_that_does_not_fit_its_type_is_named(run: Any) -> None:
    """With --app each line is checked."""
    lines = '{"name": "Ada"}\n{"nam": "Bob"}\n'

    result = run("--app", "shop:app", "enqueue", "greet", "--tenant", "a", "--lines", stdin=lines)

    assert result.exit_code == 1
    assert "line 2: arguments of 'greet'" in result.stderr
