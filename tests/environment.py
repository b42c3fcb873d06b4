"""The environment of interpreters that tests start."""

from __future__ import annotations

import os


def unmeasured() -> dict[str, str]:
    """Ours without coverage, which loads modules of its own: for tests that count modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
