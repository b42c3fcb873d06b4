"""`import holdfast` stays light: what only some need is loaded when they need it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.environment import unmeasured

HEAVY = {
    "aiohttp",
    "anyio",
    "asyncpg",
    "click",
    "cryptography",
    "fdb",
    "hypothesis",
    "multiprocessing",
    "psycopg",
    "pydantic",
    "pytest",
    "redis",
    "rich",
    "sqlite3",
    "starlette",
    "uvicorn",
}


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after the statement."""
    code = f"{statement}\nimport json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=unmeasured(),
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "statement",
    [
        "import holdfast",
        "import holdfast; holdfast.App('memory://')",
        "import holdfast.outbound",
        "import holdfast.worker",
        "import holdfast.testing",
    ],
)
def test_importing_loads_nothing_heavy(statement: str) -> None:
    """No driver, no command line, no test tool."""
    assert {name.partition(".")[0] for name in loaded_by(statement)} & HEAVY == set()


def test_importing_holdfast_loads_no_store_and_no_skin() -> None:
    """Stores load by their URL, skins by their command."""
    ours = {name for name in loaded_by("import holdfast") if name.startswith("holdfast")}

    for part in ("stores.memory", "stores.sqlite", "cli", "testing", "worker", "upkeep", "operate"):
        assert not any(f"{name}.".startswith(f"holdfast.{part}.") for name in ours), part
