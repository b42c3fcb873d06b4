"""What the command line says to people: one of a thing is one thing, and 80 columns are enough."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from typing import Any

from holdfast.core.job import State
from holdfast.core.plural import many

WRONG = re.compile(
    r"(?<![\d.,/])\b1 (?:\w+ )?(jobs|letters|workers|slots|tenants|queues|leases|times)\b"
)
PATIENCE_S = 30


def test_one_is_not_many() -> None:
    """And none is."""
    assert [many(n, "job") for n in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]


def test_no_command_says_one_jobs(run: Any, shelf: Any) -> None:
    """Each that tells a number of things, with one of them."""
    shelf.bury("dead")
    shelf.add("one", queue="mail")
    told = [
        run(*command.split(), stdin="{}").output
        for command in (
            "doctor",
            "load",
            "job one --explain",
            "limit --tenant acme --queue mail",
            "dead replay dead --dry-run",
            "dead purge dead --yes",
            "enqueue t --tenant acme --lines",
            "cancel --tenant acme one",
        )
    ]

    assert [WRONG.findall(text) for text in told] == [[]] * len(told)


def on_a_terminal(shelf: Any, columns: int, *arguments: str) -> list[str]:
    """The lines that a command writes to a terminal of this width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        env = {**os.environ, "HOLDFAST_STORE": shelf.url, "TERM": "xterm"}
        env.pop("COLUMNS", None)
        command = [sys.executable, "-m", "holdfast", *arguments]
        ran = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=env)
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux: the other side is closed.
                break
            if not part:
                break
            text += part
        assert ran.wait(PATIENCE_S) == 0, text
    finally:
        os.close(ours)
    return re.sub(r"\x1b\[[\d;]*m", "", text.decode().replace("\r\n", "\n")).splitlines()


def test_jobs_are_readable_at_80_columns(shelf: Any) -> None:
    """Ids are whole, words are not broken, no line is longer than the terminal."""
    id = "01a1ec84-2fed-76e1-9f81-580c1d0b9358"
    shelf.add(id, tenant="a-customer-with-a-name", queue="newsletters", type="send_newsletter")
    [lease] = shelf.lease()
    error = "Traceback\nValueError: the address 'nobody@example.com' was refused by the server"
    shelf.settle(lease, State.FAILED, error=error)

    lines = on_a_terminal(shelf, 80, "jobs")

    assert max(len(line) for line in lines) <= 80
    assert lines[0].startswith(f"{id}  failed 1/3, ")
    assert lines[1] == "    send_newsletter  a-customer-with-a-name / newsletters"
    assert lines[2].startswith("    ValueError: the address 'nobody@example.com' was refused")
    assert on_a_terminal(shelf, 200, "jobs")[0].split()[:3] == ["id", "tenant", "queue"]


def test_a_timeline_has_instants_and_lengths(run: Any, shelf: Any) -> None:
    """When each thing happened, and how long after the one before."""
    shelf.bury("one")

    told = run("job", "one").stdout

    lines = told[told.index("timeline") :].splitlines()[2:]
    instant = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"
    assert re.match(rf"{instant} +enqueued", lines[0])
    assert re.match(rf"{instant} +\d+\.\d{{3}} s +leased +1 +for 60 s", lines[1])
    assert re.match(rf"{instant} +\d+\.\d{{3}} s +failed", lines[2])
