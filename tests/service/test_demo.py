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


def test_jobs_that_fail_on_purpose_do_not_bury_the_lines_to_try(tmp_path: Path) -> None:
    """What it prints is what to try, however many of its jobs fail."""
    heard: list[str] = []
    call = ["curl", "-sS", "-H", "Holdfast-Tenant: demo"]
    failing = '{"type":"greet","payload":{"name":"nobody"},"queue":"mail","id":"fails"}'
    with serving(f"sqlite:///{tmp_path}/jobs.db", "--demo", heard=heard) as url:
        json = ["-H", "Content-Type: application/json", "-d", failing]
        subprocess.run([*call, *json, f"{url}/v1/jobs"], check=True, timeout=BOUND_S)
        done = subprocess.run(
            [*call, f"{url}/v1/jobs/fails/result?wait=20"],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=True,
        )

    assert '"state":"failed"' in done.stdout
    assert "Try these in another shell" in heard[0]
    assert "Traceback" not in heard[0]
    assert "attempt" not in heard[0]
