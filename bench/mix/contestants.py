"""Who takes part in the mix: this tree, another checkout, and other queues."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.measure import Sizes
from bench.mix.figures import BEHIND, BESIDE, HOLDFAST, OURS, SET, Entry
from bench.peers import ROOT, Harness, Say, find_harness
from bench.places import NAMES

ELSEWHERE = "all defaults, the code of another checkout"


class NoCheckout(Exception):
    """The path of --beside holds no code of Holdfast."""


class Contestant(msgspec.Struct, frozen=True, kw_only=True):
    """How to start one."""

    entry: Entry
    python: str
    module: str
    stores: Sequence[str]
    env: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def ours(self) -> bool:
        """Whether it is Holdfast: with tenants and limits, and it says when a job is settled."""
        return self.name in HOLDFAST

    def command(self) -> list[str]:
        return [self.python, "-m", f"bench.mix.children.{self.module}"]


class _Peer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    adapter: str
    """Of the harness: it says which packages the environment needs."""
    module: str
    stores: Sequence[str]
    settings: str
    env: dict[str, str] = {}


PEERS = (
    _Peer(
        name="pgqueuer",
        adapter="pgqueuer",
        module="pgqueuer",
        stores=("postgres",),
        settings="max_concurrent_tasks = concurrency, batch_size its default of 10, but at most "
        "half of the concurrency (the most it accepts), 10 connections for its client, uvloop",
    ),
    _Peer(
        name="pgqueuer-tuned",
        adapter="pgqueuer",
        module="pgqueuer",
        stores=("postgres",),
        settings="as pgqueuer with batch_size = half of the concurrency, the most it accepts",
        env={"BENCH_PGQUEUER": "half"},
    ),
    _Peer(
        name="pgqueuer-uncapped",
        adapter="pgqueuer",
        module="pgqueuer",
        stores=("postgres",),
        settings="as pgqueuer with batch_size = concurrency and no bound of jobs in progress: "
        "not the same concurrency, so no floor counts it",
        env={"BENCH_PGQUEUER": "uncapped"},
    ),
    _Peer(
        name="dramatiq",
        adapter="dramatiq",
        module="dramatiq",
        stores=("redis",),
        settings="threads = concurrency, on one core, queue_prefetch 200, its client blocks",
        env={"dramatiq_queue_prefetch": "200"},
    ),
    _Peer(
        name="saq",
        adapter="saq_redis",
        module="saq",
        stores=("redis",),
        settings="one queue, orjson, results off, uvloop",
    ),
    _Peer(
        name="huey",
        adapter="huey_sqlite",
        module="huey",
        stores=("sqlite-full", "sqlite-normal"),
        settings="threads = concurrency, on one core, results off, its client blocks; "
        "synchronous as in the store beside it",
    ),
)


def own() -> Contestant:
    return Contestant(
        entry=Entry(name=OURS, version=_commit(ROOT), settings="all defaults"),
        python=sys.executable,
        module="holdfast",
        stores=NAMES,
    )


_PLATFORM = {
    SET: "all defaults, and a running limit and a rate over all tenants that hold nothing back",
    BEHIND: "all defaults, and all work behind a running limit of 50 over all tenants",
}


def over_all() -> list[Contestant]:
    """This tree with limits over all tenants."""
    version = _commit(ROOT)
    return [
        Contestant(
            entry=Entry(name=name, version=version, settings=settings),
            python=sys.executable,
            module="holdfast",
            stores=NAMES,
            env={"BENCH_PLATFORM": name},
        )
        for name, settings in _PLATFORM.items()
    ]


def beside(path: Path) -> Contestant:
    """The code of another checkout, in its own environment if it has one."""
    path = path.absolute()
    if not (path / "src" / "holdfast").is_dir():
        raise NoCheckout(f"{path} has no src/holdfast")
    python = path / ".venv" / "bin" / "python"
    return Contestant(
        entry=Entry(name=BESIDE, version=_commit(path), settings=ELSEWHERE),
        python=str(python) if python.exists() else sys.executable,
        module="holdfast",
        stores=NAMES,
        env={"PYTHONPATH": str(path / "src")},
    )


def peers(harness: str | None, stores: Sequence[str], say: Say) -> list[Contestant]:
    """Those on one of these stores. The harness makes an environment for each at the first run."""
    wanted = [one for one in PEERS if {*one.stores} & {*stores}]
    with tempfile.TemporaryDirectory(prefix="holdfast-mix-") as folder:
        found = Harness(find_harness(harness), Path(folder), Sizes.quick(), say).environments(
            sorted({one.adapter for one in wanted})
        )
    return [
        Contestant(
            entry=Entry(
                name=one.name, version=found[one.adapter]["version"], settings=one.settings
            ),
            python=found[one.adapter]["python"],
            module=one.module,
            stores=one.stores,
            env=one.env,
        )
        for one in wanted
        if one.adapter in found
    ]


def environment(contestant: Contestant) -> dict[str, str]:
    """No other code than its own is on its path; `bench` is found in the working directory."""
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {**inherited, "PYTHONUNBUFFERED": "1", **contestant.env}


def _commit(path: Path) -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(
        command, cwd=path, capture_output=True, text=True, check=False, timeout=10
    ).stdout.strip()
