"""The mix runs, at a small size, with real processes; its jobs are the same for all."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from bench.figures import Check, Run
from bench.mix.__main__ import main
from bench.mix.contestants import NoCheckout, beside, own
from bench.mix.figures import BEHIND, BESIDE, OURS, SET, Cell, Entry, Mix, Row
from bench.mix.jobs import TYPES, mix_jobs, size
from bench.mix.measure import Shape
from bench.verdict import checks

ROOT = Path(__file__).parent.parent


def test_the_jobs_are_the_same_at_every_call() -> None:
    """So that every contestant gets the same ones."""
    assert list(mix_jobs(100, 20)) == list(mix_jobs(100, 20))


def test_the_jobs_are_of_five_types_and_of_50_to_1500_bytes() -> None:
    """Over all tenants; keys are never the same."""
    jobs = list(mix_jobs(2_000, 20))

    sizes = [size(job) for job in jobs]
    assert {job.type for job in jobs} == {*TYPES}
    assert 50 <= min(sizes) < 60
    assert 1_400 < max(sizes) <= 1_500
    assert len({job.tenant for job in jobs}) == 20
    keys = [job.key for job in jobs if job.key is not None]
    assert len(keys) == len({*keys})


def test_the_mix_runs_on_stores_without_a_server(tmp_path: Path) -> None:
    """On memory and SQLite, with limits and without, beside a checkout: all cells have figures."""
    found = _mix(tmp_path, "--stores", "memory,sqlite-normal", "--beside", str(ROOT))

    assert found.mix is not None
    cells = [one.cell for one in found.mix.rows if one.contestant == OURS]
    assert [one.cell for one in found.mix.rows if one.contestant == BESIDE] == cells
    assert {(one.store, one.limits) for one in cells} == {
        (store, limits) for store in ("memory", "sqlite-normal") for limits in (True, False)
    }
    for row in found.mix.rows:
        assert row.failed == []
        for column in (row.enqueue, row.drain, row.settled, row.worker_us):
            assert len(column) == 1
            assert column[0] > 0


def test_limits_over_all_tenants_are_measured_beside_none(tmp_path: Path) -> None:
    """One cell with each: what the limits cost, and what is left where all work waits for one."""
    found = _mix(
        tmp_path, "--stores", "memory", "--platform", "--limits", "without", "--tenants", "3"
    )

    assert found.mix is not None
    assert [one.contestant for one in found.mix.rows] == [OURS, SET, BEHIND]
    assert all(one.settled and not one.failed for one in found.mix.rows)
    assert [one.target for one in found.checks] == [0.9, 0.5]


def _mix(folder: Path, *more: str) -> Run:
    path = folder / "mix.json"
    main(["--quick", "--jobs", "100", "--json", str(path), *more])
    return msgspec.json.decode(path.read_bytes(), type=Run)


def test_a_contestant_that_fails_is_noted_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line that it wrote is told; the others go on."""
    broken = msgspec.structs.replace(
        own(), entry=Entry(name="broken"), module="nothing_of_this_name"
    )
    monkeypatch.setattr("bench.mix.__main__._contestants", lambda *_: [broken, own()])

    found = _mix(tmp_path, "--stores", "memory", "--limits", "without")

    assert found.mix is not None
    first, second = found.mix.rows
    assert "nothing_of_this_name" in first.failed[0]
    assert second.drain


def test_a_path_without_code_is_refused(tmp_path: Path) -> None:
    """Before anything is measured."""
    with pytest.raises(NoCheckout):
        beside(tmp_path)


def test_peers_run_in_the_cells_that_they_can_do() -> None:
    """They have no tenants and no limits: one count of tenants, without limits, their stores."""
    peer = msgspec.structs.replace(own(), entry=Entry(name="pgqueuer"), stores=("postgres",))
    shape = Shape()

    took = [
        cell
        for store in shape.stores
        for cell in shape.cells(store)
        if shape.takes_part(peer, cell)
    ]

    assert took == [
        Cell(store="postgres", tenants=20, concurrency=each, limits=False) for each in (10, 100)
    ]
    assert shape.minutes([own(), peer]) > shape.minutes([own()]) > 0


def test_the_written_run_is_plain_json(tmp_path: Path) -> None:
    """Sizes are told as they were asked for."""
    _mix(tmp_path, "--stores", "memory", "--limits", "with", "--tenants", "3")

    wrote = json.loads((tmp_path / "mix.json").read_text())
    assert wrote["sizes"]["tenants"] == [3]
    assert wrote["sizes"]["limits"] == [True]


def _rows(*rows: tuple[str, Cell, dict[str, list[float]]]) -> dict[str, Check]:
    made = [
        Row(contestant=name, cell=cell, **figures)  # type: ignore[arg-type]
        for name, cell, figures in rows
    ]
    return {one.what: one for one in checks(Run(made={}, mix=Mix(rows=made)))}


def test_the_mix_is_compared_with_pgqueuer_at_each_concurrency() -> None:
    """By the drain to the last handler's end, which both tell."""
    ten = Cell(store="postgres", tenants=20, concurrency=10, limits=False)
    hundred = msgspec.structs.replace(ten, concurrency=100)

    found = _rows(
        (OURS, ten, {"drain": [17.0, 18.0, 30.0], "settled": [1.0]}),
        ("pgqueuer", ten, {"drain": [10.0]}),
        (OURS, hundred, {"drain": [17.0]}),
        ("pgqueuer", hundred, {"drain": [10.0]}),
    )

    assert {name: (one.value, one.met) for name, one in found.items()} == {
        "postgres: mix, drain at concurrency 10": (1.8, True),
        "postgres: mix, drain at concurrency 100": (1.7, False),
    }


def test_the_mix_is_compared_with_another_checkout_on_each_store() -> None:
    """Over the counts of tenants; the lowest is named. What has no figure is not met."""
    one = Cell(store="redis", tenants=1, concurrency=10, limits=True)
    many = msgspec.structs.replace(one, tenants=1000)

    found = _rows(
        (OURS, one, {"enqueue": [10.0], "settled": [20.0]}),
        (BESIDE, one, {"enqueue": [10.0], "settled": [10.0]}),
        (OURS, many, {"enqueue": [10.0], "settled": [5.0]}),
        (BESIDE, many, {"settled": [10.0]}),
    )

    settled = found["redis: mix, with limits, settled at concurrency 10"]
    assert settled.value == pytest.approx(1.0)
    assert settled.against == "the other checkout; lowest 0.50 with 1,000 tenants"
    assert settled.met
    enqueue = found["redis: mix, with limits, enqueue"]
    assert (enqueue.value, enqueue.met) == (None, False)


def test_limits_over_all_tenants_are_compared_with_none() -> None:
    """Cell by cell, by the work to its settled end."""
    cell = Cell(store="sqlite-full", tenants=20, concurrency=10, limits=False)

    found = _rows(
        (OURS, cell, {"settled": [100.0]}),
        (SET, cell, {"settled": [91.0]}),
        (BEHIND, cell, {"settled": [49.0]}),
    )

    told = "sqlite-full: mix, 20 tenants, concurrency 10, without limits"
    assert {name: (one.value, one.met) for name, one in found.items()} == {
        f"{told}, platform": (0.91, True),
        f"{told}, behind-50": (0.49, False),
    }
