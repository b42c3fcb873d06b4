"""The harness of the peers is found or said to be missing; what it writes is read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from bench.figures import Peers
from bench.peers import (
    OURS,
    NoHarness,
    ceiling,
    find_harness,
    read_ceilings,
    read_pickups,
    read_pinned,
    read_rows,
)

ADAPTERS = Path(__file__).parent.parent / "bench" / "adapters"


def test_a_missing_harness_is_named_with_the_way_to_name_another(tmp_path: Path) -> None:
    """Whoever has none can still measure Holdfast alone."""
    with pytest.raises(NoHarness, match="--harness") as told:
        find_harness(str(tmp_path))

    assert str(tmp_path) in str(told.value)


def test_a_harness_is_found_by_argument(tmp_path: Path) -> None:
    """A folder that holds its files."""
    for name in ("run.py", "client.py", "engines.py"):
        (tmp_path / name).touch()
    (tmp_path / "adapters").mkdir()

    assert find_harness(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", OURS)
def test_our_adapters_say_all_that_the_harness_reads(name: str) -> None:
    """It reads the names in capitals as literals, without running the file."""
    tree = ast.parse((ADAPTERS / f"{name}.py").read_text())
    said = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }

    assert said["ENGINE"] in ("redis", "postgres", "sqlite")
    assert said["DISTS"][0] == "holdfast"
    assert said["REQUIRES"][:1] == ["-e"]
    assert "keep_s=0" in said["CONFIG"]


def test_every_adapter_names_its_worker_so_that_the_harness_can_read_it() -> None:
    """A list that is not a literal is passed over, and nothing would run."""
    tree = ast.parse((ADAPTERS / "huey_sqlite_normal.py").read_text())
    [worker] = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "WORKER"
    ]

    assert "adapters.huey_sqlite_normal.huey" in worker


def test_what_the_harness_wrote_is_read() -> None:
    """Rows of rounds become lists; what did not run keeps its reason."""
    drain = {"rate": 10.0, "worker_cpu_us": 20.0, "engine_cpu_us": None}
    wrote = {
        "peers": {
            "saq": {
                "engine": "redis",
                "version": "1",
                "meta": {"CONFIG": "c"},
                "single": [{"rate": 1.0}, {"rate": 2.0}],
                "bulk": [{"rate": 5.0, "how": "gather x100"}],
                "drain": [drain],
                "latency": {"p50": 1.5, "p99": 2.5},
            },
            "arq": {"engine": "redis", "not_run": "not run: why"},
        }
    }

    found = Peers(rows=read_rows(wrote))
    read_pinned(found, {"peers": {"saq": {"drain": [{"rate": 30.0}]}}})
    read_pickups(found, wrote)
    for value in (1.0, 3.0, 2.0):
        read_ceilings(found, {"ceilings": {"Lua claim 100": value, "load average": "0.1"}})

    saq, arq = found.rows
    assert (saq.single, saq.how, saq.worker_us, saq.engine_us) == (
        [1.0, 2.0],
        "gather x100",
        [20.0],
        [],
    )
    assert (saq.best_drain, saq.pickup_p99_ms) == (30.0, [2.5])
    assert arq.not_run == "not run: why"
    assert ceiling(found, "Lua") == ("Lua claim 100", 2.0)
    assert ceiling(found, "other") is None
