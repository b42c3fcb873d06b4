"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

GUIDE = EXAMPLES.parent / "docs" / "guides" / "schedules.md"


def table_of_clock_changes() -> list[str]:
    """As the guide of schedules shows it."""
    lines = GUIDE.read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| cron, in"))
    return lines[start : lines.index("", start)]


SAYS = {
    "audio_pipeline.py": [
        "acme: completed, 6 nodes, started once: True",
        "ACEACEEA at -9.2 dB, trace:t1",
        "decoded in attempt 2: 16000 samples by reference",
        "first of its queue: waveform, never more than two parts: True",
        "globex: canceled, its sound was dropped",
        "initech: failed by a full bucket, so are 5 nodes after it",
    ],
    "clock_changes.py": table_of_clock_changes(),
    "nightly_report.py": [
        "sync of shop 42 for acme",
        "report of Wednesday 05:00 UTC",
        "sync of shop 42 for acme",
        "report of Thursday 05:00 UTC",
        "a backfill would make 2 jobs",
    ],
    "quickstart.py": [
        "created True then False same job True",
        "sent 'hello' to ada@example.com",
    ],
    "typed_jobs.py": [
        "refused at the call: arguments of 'GenerateWaveform': Expected `str`, got `int`"
        " - at `$.blob_id`",
        "scheduled",
        "{'track': 't1', 'points': 2000}",
    ],
    "outcomes.py": [
        "busy: done in attempt 3, run 3",
        "not yet: done in attempt 1, run 2",
        "gone: PERMANENT",
        "replayed as a new job: True",
    ],
    "order_with_approval.py": [
        "a book is on its way; a lamp is on its way; a chair is on its way",
        "steps: charge, reserve, cooling off",
        "failed attempts: ['the warehouse did not answer']",
        "log: ['3 reserved, 3 sent'] charged: 1",
    ],
    "blocking.py": ["[2, 4, 6]"],
    "crawl_fan_in.py": [
        "a: published 3 rows",
        "a: notified",
        "a: completed, 3 nodes",
        "b: published 1 rows",
        "dropped 2 pages",
        "b: notified",
        "b: failed, 1 node failed",
    ],
    "payment_exactly_once.py": [
        "completed: {'cents': 500}",
        "completed: {'cents': 300}",
        "completed: {'cents': 50}",
        "accounts: [('ada', 150), ('bob', 850)]",
        "receipts: [50, 300, 500]",
        "workers that were killed: 2",
    ],
    "store_sync.py": [
        "250 created, cursor 250, 249 in the shop",
        "dead letter: transfer after 3 attempts, MAX_ATTEMPTS",
        "replayed: 250 in the shop",
        "252 created, 1 updated, 1 deleted",
        "the shop is the warehouse: True",
        "each change was done once: True busy: True",
    ],
    "middleware.py": ["hello Ada", "[('greet', True)]"],
}


def test_every_example_is_run() -> None:
    """No example stands unproven beside the others."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_says_what_its_page_promises(name: str) -> None:
    """An example is code that a newcomer copies: it must work and print what it claims."""
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == SAYS[name]
