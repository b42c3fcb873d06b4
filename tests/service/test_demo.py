"""`holdfast serve --demo`, which ./scripts/start runs: the lines that it prints can be pasted."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.service.live import serving

from holdfast.cli.demo_service import TENANTS, hello

BOUND_S = 60


def test_the_lines_to_try_work_when_pasted(tmp_path: Path) -> None:
    """Against the demo itself, whose worker runs what is enqueued."""
    told = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"curl (\d+)\.(\d+)", told.stdout)
    if found is None or (int(found[1]), int(found[2])) < (7, 82):
        pytest.skip("no curl that knows --json")

    with serving(f"sqlite:///{tmp_path}/jobs.db", "--demo") as url:
        *lines, stream = re.findall(r"^  (curl .*)$", hello(url), re.MULTILINE)
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", "\n".join([*lines, f"{stream} || true"])],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    assert '"result":"hello Ada"' in done.stdout
    assert '"payload":[1,2]' in done.stdout
    assert "event: " in done.stdout
    assert TENANTS[0] in done.stdout
    assert "INVALID" not in done.stdout
