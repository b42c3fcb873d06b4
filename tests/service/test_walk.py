"""The walk of docs/service/README.md: what it shows works, and it leaves no route out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.service.live import serving

from holdfast.service.routes import ROUTES

PAGE = Path(__file__).parents[2] / "docs" / "service" / "README.md"
WALK_S = 60


def _script() -> str:
    return "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))


def test_every_step_of_the_walk_works() -> None:
    """As pasted into a shell, against a service that runs."""
    curl = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"curl (\d+)\.(\d+)", curl.stdout)
    if found is None or (int(found[1]), int(found[2])) < (7, 82):
        pytest.skip("no curl that knows --json")

    with serving("memory://", "--blobs=memory://") as url:  # It has every capability.
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", f"H={url}\n{_script()}"],
            capture_output=True,
            text=True,
            timeout=WALK_S,
            check=False,
        )

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "event: enqueued" in done.stdout


def test_the_walk_leaves_no_route_out() -> None:
    """Each line of the table has a line of the walk that calls it."""
    lines = [line for line in _script().splitlines() if "$H/" in line]
    calls = {(_method(line), _path(line)) for line in lines}

    missing = [
        f"{route.method} {route.path}"
        for route in ROUTES
        if route.part != "store"
        and not any(
            method == route.method and re.fullmatch(_pattern(route.path), path)
            for method, path in calls
        )
    ]

    assert missing == []


def _method(line: str) -> str:
    said = re.search(r"-X (\w+)", line)
    return said[1] if said else "POST" if "--json" in line or line.startswith(" ") else "GET"


def _path(line: str) -> str:
    found = re.search(r"\$H(/[^\s\"?)]*)", line)
    assert found is not None, line
    return found[1]


def _pattern(path: str) -> str:
    return re.sub(r"\{\w+\}", "[^/]+", path)
