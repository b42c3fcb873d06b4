"""The memory that a blob of 100 MB takes: real processes, SQLite, a folder of blobs."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.environment import unmeasured

MIB = 1024 * 1024
SIZE = 100 * MIB
MORE_MAX = 50 * MIB
ROW_MAX = 2048


def started(what: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.payload.stream", what, f"sqlite:///{folder}/jobs.db"]
    return subprocess.Popen(
        [*command, f"file://{folder}/blobs", f"{folder}/data"],
        stdout=subprocess.PIPE,
        text=True,
        env=unmeasured(),
        cwd=Path(__file__).parents[2],
    )


def peak(process: subprocess.Popen[str]) -> int:
    """The most memory that a process had."""
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return int(out)


def test_a_payload_of_100_mb_by_reference_takes_little_memory(tmp_path: Path) -> None:
    """Client and worker stay below 50 MB above their base, and the row below 2 KB."""
    part, sha = os.urandom(MIB), hashlib.sha256()
    with (tmp_path / "data").open("wb") as file:
        for number in range(SIZE // MIB):
            chunk = number.to_bytes(4, "big") + part[4:]
            sha.update(chunk)
            file.write(chunk)
    base = peak(started("base", tmp_path))

    worker, client = started("worker", tmp_path), started("client", tmp_path)
    more = {"client": peak(client) - base, "worker": peak(worker) - base}

    assert {name: taken // MIB for name, taken in more.items() if taken > MORE_MAX} == {}
    copy = hashlib.sha256((tmp_path / "data.copy").read_bytes())
    assert copy.hexdigest() == sha.hexdigest()
    with sqlite3.connect(tmp_path / "jobs.db") as database:
        [row] = database.execute("SELECT * FROM jobs WHERE id = 'j'").fetchall()
    assert sum(len(each) if isinstance(each, str | bytes) else 8 for each in row) < ROW_MAX
    print({name: f"{taken / MIB:.1f} MiB above {base / MIB:.0f}" for name, taken in more.items()})
