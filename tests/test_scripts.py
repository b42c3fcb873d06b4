"""What the scripts install is pinned with its hash: they run before anything could be checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = [path for path in (ROOT / "scripts").iterdir() if path.suffix == ""]
INSTALLS = re.compile(r"pip install(?:[^\n]*\\\n)*[^\n]*")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_installs_nothing_without_a_hash(script: Path) -> None:
    """Only this project itself, which is here, may come without one."""
    for line in INSTALLS.findall(script.read_text()):
        assert "--require-hashes" in line or "--editable ." in line, line


def test_the_installer_is_pinned() -> None:
    """uv: one version, and the hashes of its files."""
    text = (ROOT / "scripts" / "uv.lock").read_text()

    assert re.findall(r"^(\w+)==[\d.]+ \\$", text, re.M) == ["uv"]
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", text)) > 5


@pytest.mark.parametrize("script", ["setup", "lock"])
def test_who_needs_the_installer_takes_the_pinned_one(script: str) -> None:
    """By the one script that knows how."""
    assert "./scripts/tools" in (ROOT / "scripts" / script).read_text()
