"""What every run of a benchmark notes about itself, says while it runs, and keeps."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.figures import Run

ROOT = Path(__file__).parent.parent


def made() -> dict[str, str]:
    """When, where and with what."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    ).stdout.strip()
    uvloop = importlib.util.find_spec("uvloop") is not None
    packages = ("holdfast", "msgspec", "asyncpg", "redis", *(("uvloop",) if uvloop else ()))
    return {
        "date": datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {_memory_gb()} GB, {platform.platform()}",
        "python": platform.python_version(),
        "loop": "uvloop" if uvloop else "asyncio",
        "packages": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def keep(run: Run, path: str | None) -> None:
    """After every store: a run that is broken off has not been in vain."""
    if path is not None:
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def say(text: str) -> None:
    print(f"{datetime.now(tz=UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def _memory_gb() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
