"""No server outlives its test run, and a run says which servers it has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers import watcher
from tests.servers.binaries import lines
from tests.servers.hands import gone
from tests.servers.kinds import KINDS, Missing, install_of

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 30.0

CHILD = """
import json, sys
from tests.servers.kinds import KINDS, Missing, make
servers = []
for kind in KINDS:
    try:
        servers.append(make(kind))
    except Missing:
        continue
    servers[-1].start()
servers[0].freeze()
nodes = [node for server in servers for node in getattr(server, "nodes", [server])]
told = {"pids": [pid for node in nodes for pid in node.pids],
        "folders": [str(node.folder) for node in nodes]}
print(json.dumps(told), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_nothing_outlives_the_test_run(how: str) -> None:
    """Neither when it is killed nor when it ends without a word to its servers."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
        assert len(told["pids"]) >= len(told["folders"]) > 0
        assert all(map(watcher.alive, told["pids"]))
        if how == "killed":
            child.send_signal(signal.SIGKILL)
        else:
            child.stdin.close()
        child.wait(PATIENCE_S)

    assert watcher.until(lambda: gone(told["pids"]), PATIENCE_S)
    assert watcher.until(lambda: not any(map(os.path.exists, told["folders"])), PATIENCE_S)


def test_the_binaries_are_told_by_kind() -> None:
    """What `./scripts/test` prints first: a line for each, also for one that is not there."""
    said = lines()

    assert [line.split()[0] for line in said] == KINDS
    found = [line for line in said if "not found" not in line]
    assert all(Path(line.split()[2]).exists() for line in found)


def test_a_missing_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what is missing and what to set; only a run that requires it fails."""
    monkeypatch.setattr("tests.servers.kinds.redis_install", lambda: None)
    for value, required in (("0", False), ("1", True)):
        monkeypatch.setenv("HOLDFAST_TEST_REQUIRE", value)
        with pytest.raises(Missing, match=r"^cluster: .*HOLDFAST_TEST_REDIS_BIN") as caught:
            install_of("cluster")
        assert caught.value.required is required
