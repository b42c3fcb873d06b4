"""The cost of a transaction that stays open is measured, and told beside the cost without one."""

from __future__ import annotations

import pytest
from bench.bloat import HOLDS, Phase, main, told
from bench.places import Missing


def test_every_hold_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """At a small size, on a private server."""
    try:
        main(["--seconds", "0.6", "--per-s", "100"])
    except Missing as lack:
        pytest.skip(str(lack))

    shown = capsys.readouterr().out
    assert [shown.count(f"\n{held} ") for held in HOLDS] == [5, 6, 6]


def test_a_hold_is_told_beside_the_same_time_without_one() -> None:
    """Jobs a second and the median of the claims."""
    phases = [
        Phase("nothing", "last third", done=100, seconds=1.0, claims=[0.001]),
        Phase("xid", "last third", done=50, seconds=1.0, claims=[0.003]),
    ]

    *_, last = told(phases)

    assert last.startswith("xid held, last third: 0.50 of the jobs/s and 3.00 of the claim's time")
