"""A client in another language, written against the wire's contract, meets a real service."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.servers.kinds import KINDS, Missing, Servers
from tests.service.live import serving

from holdfast.service.firecrawl.routes import LINES

SCRIPT = Path(__file__).with_name("firecrawl.mjs")
CLAIM_S = 2
SCRIPT_S = 120
OFTEN = [("sqlite", False), ("postgres15", True), ("redis", True)]
RARELY = [(kind, True) for kind in ("sqlite", *KINDS) if (kind, True) not in OFTEN]
CASES = [*OFTEN, *(pytest.param(*case, marks=pytest.mark.slow) for case in RARELY)]


def _node() -> str:
    """An interpreter with fetch; without one the test is skipped visibly."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node found")
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"v(\d+)", told)
    if found is None or int(found[1]) < 18:
        pytest.skip(f"node is {told.strip()}, 18 or newer has fetch")
    return node


@pytest.mark.parametrize(("kind", "alone"), CASES)
def test_a_client_in_another_language_finds_all_routes_as_described(
    kind: str, alone: bool, servers: Servers, tmp_path: Path
) -> None:
    """Against `holdfast serve`, with nothing but fetch; with upkeep beside it, and alone."""
    node = _node()
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/jobs.db"
    else:
        try:
            url = servers.get(kind).lend("firecrawl")
        except Missing as missing:
            missing.end_test()

    options = [f"--claim-ttl={CLAIM_S}", *(["--no-upkeep"] if alone else [])]
    with serving(url, *options) as base:
        done = subprocess.run(
            [node, str(SCRIPT), base, str(CLAIM_S), "alone" if alone else "upkeep"],
            capture_output=True,
            text=True,
            timeout=SCRIPT_S,
            check=False,
        )

    if kind != "sqlite":
        servers.get(kind).clear()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"ok all {len(LINES)} routes" in done.stdout
