"""The other queues beside Holdfast, in one run of the harness that knows how to run them.

The harness is no part of this project: it is copied to a temporary folder, our adapters are laid
beside its own, and its `run.py` is started there. It makes an environment for each system and
starts private servers; Holdfast is installed from this working tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.servers import watcher

from bench.figures import Peer, Peers
from bench.measure import Sizes

ROOT = Path(__file__).parent.parent
HARNESS = "HOLDFAST_BENCH_HARNESS"
HOME = "PEERBENCH_HOME"
OURS = ("holdfast_redis", "holdfast_postgres", "holdfast_sqlite_full", "holdfast_sqlite_normal")
FASTEST = (
    *("dramatiq", "taskiq_stream", "saq_redis", "streaq", "huey_redis"),
    *("pgqueuer", "chancy", "procrastinate"),
    *("huey_sqlite", "huey_sqlite_normal", "huey_sqlite_full", "litequeue", "persistqueue"),
)
"""Of each engine, by what the harness found before."""
THREADED = ("dramatiq", "huey_redis", "huey_sqlite", "huey_sqlite_normal", "huey_sqlite_full")
"""Their drain is also measured on one core, where they are up to twice as fast."""
SCRIPTS = ("_inflight.py", "_environments.py")
"""Ours that run beside the harness's `run.py`; the other files are adapters."""
STEP_S_MAX = 3600.0
STOP_S = 60.0

Say = Callable[[str], None]


class NoHarness(Exception):
    """The harness is not there; says where it was looked for."""


def find_harness(given: str | None) -> Path:
    """By argument, environment, or beside the project."""
    place = Path(given or os.environ.get(HARNESS) or ROOT.parent / "shared" / "bench" / "peers")
    for name in ("run.py", "client.py", "engines.py", "adapters"):
        if not (place / name).exists():
            raise NoHarness(
                f"no harness of the peers in {place} (it has no {name}): "
                f"name its folder by --harness or {HARNESS}, or leave --peers out"
            )
    return place.absolute()


class Harness:
    """A copy of the harness with our adapters in it."""

    def __init__(self, source: Path, folder: Path, sizes: Sizes, say: Say) -> None:
        self._place = folder / "harness"
        self._folder = folder
        self._sizes = sizes
        self._say = say
        # The environment with Holdfast in it points to this very tree: another tree, another home.
        key = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
        home = os.environ.get(HOME) or Path(tempfile.gettempdir()) / f"holdfast-peers-{key}"
        quick = {"PEERBENCH_CEIL_S": "1"} if sizes.rounds == 1 else {}
        self._env = {**os.environ, HOME: str(home), **quick}
        Path(home, "logs").mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, self._place)
        for path in (self._place, *self._place.rglob("*")):  # the original may be read-only
            path.chmod(0o755 if path.is_dir() else 0o644)
        for each in (ROOT / "bench" / "adapters").glob("*.py"):
            where = self._place if each.name in SCRIPTS else self._place / "adapters"
            shutil.copyfile(each, where / each.name)

    def engines(self) -> dict[str, str]:
        """Each adapter with its engine, read as the harness does: without running it."""
        found = {}
        for path in sorted((self._place / "adapters").glob("[!_]*.py")):
            said = re.search(r'^ENGINE = "(\w+)"', path.read_text(), re.MULTILINE)
            if said is not None:
                found[path.stem] = said[1]
        return found

    def run(self, out: str, measures: str, names: list[str], *more: str) -> dict[str, Any]:
        """What `run.py` wrote for these measures."""
        sizes, path = self._sizes, self._folder / out
        words = {
            "--only": ",".join(names),
            "--measures": measures,
            "--repeat": sizes.rounds,
            "--n-single": sizes.singles,
            "--n-bulk": min(20_000, sizes.jobs),
            "--n-max": 3 * sizes.jobs,
            "--drain-s": 5 if sizes.rounds > 1 else 0.5,
            "--out": path,
        }
        self._python("run.py", *(str(word) for pair in words.items() for word in pair), *more)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def in_flight(self, out: str, names: list[str]) -> dict[str, Any]:
        path = self._folder / out
        self._python("_inflight.py", str(path), str(self._sizes.singles * 5), *names)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def environments(self, names: list[str]) -> dict[str, Any]:
        """Where the interpreter of each adapter's environment is, and the version of its queue."""
        path = self._folder / "environments"
        self._python("_environments.py", str(path), *names)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def _python(self, script: str, *words: str) -> None:
        # From the root of the project: our adapters ask pip for ".".
        command = [sys.executable, str(self._place / script), *words]
        log = self._folder / "log"
        with log.open("a") as errors, _started(command, self._env, errors) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line[:2].isdigit() or line.startswith("  "):
                    self._say("peers " + line.rstrip().removeprefix("  "))
            if process.wait() != 0:
                tail = "\n".join(log.read_text().splitlines()[-15:])
                raise NoHarness(f"{script} of the harness gave {process.returncode}:\n{tail}")


@contextlib.contextmanager
def _started(command: list[str], env: dict[str, str], errors: Any) -> Iterator[Any]:
    """Gone on exit with all that it started, also what it would leave behind after Ctrl-C."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )
    late = threading.Timer(STEP_S_MAX, process.send_signal, [signal.SIGINT])
    late.start()
    try:
        yield process
    finally:
        late.cancel()
        if process.poll() is None:
            family = {pid: watcher.stat(pid) for pid in watcher.tree(process.pid)}
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            for pid, was in family.items():
                now = watcher.stat(pid)
                if was is not None and now is not None and now.started == was.started:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.wait()


ALL = ("ceilings", "enqueue", "in flight", "drain", "pickup")


def measure_peers(
    source: Path,
    chosen: list[str],
    sizes: Sizes,
    say: Say,
    *,
    found: Peers,
    keep: Callable[[], None],
    measures: Sequence[str] = ALL,
) -> None:
    """Ours and the chosen ones, on the engines of the chosen ones. Medians are the reader's.

    Fills `found` engine by engine and calls `keep` after each: a run that is broken off has not
    been in vain, and ours is measured next to its rivals, for machines have slow minutes.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as folder:
        harness = Harness(source, Path(folder), sizes, say)
        engines = harness.engines()
        unknown = sorted({*chosen} - {*engines})
        if unknown:
            raise NoHarness(f"the harness has no adapter {', '.join(unknown)}")
        for turn in range(sizes.rounds if "ceilings" in measures else 0):
            read_ceilings(found, harness.run(f"ceilings{turn}", "ceilings", ["-"], "--skip", "-"))
        keep()
        names = sorted({*OURS, *chosen})
        for engine in sorted({engines[name] for name in chosen}):
            on_engine = [name for name in names if engines[name] == engine]
            _engine(harness, found, on_engine, sizes, measures)
            keep()


def _engine(
    harness: Harness, found: Peers, names: list[str], sizes: Sizes, measures: Sequence[str]
) -> None:
    key = names[0]
    speed = ["single", "bulk"] if "enqueue" in measures else []
    speed += ["drain"] if "drain" in measures else []
    rows = read_rows(harness.run(f"speed-{key}", ",".join(speed) or "none", names))
    found.rows += rows
    able = [one.name for one in rows if not one.not_run]
    threaded = [name for name in able if name in THREADED]
    if threaded and "drain" in measures:
        read_pinned(found, harness.run(f"pinned-{key}", "drain", threaded, "--pin"))
    for turn in range(sizes.rounds):
        if "pickup" in measures:
            read_pickups(found, harness.run(f"pickup-{key}-{turn}", "latency", able))
        if "in flight" in measures:
            _in_flight(found, harness.in_flight(f"inflight-{key}-{turn}", able))


def _in_flight(into: Peers, found: dict[str, Any]) -> None:
    for name, one in found.items():
        row = into.row(name)
        if row is not None and "per_s" in one:
            row.concurrent.append(one["per_s"])


# -- what the harness wrote ------------------------------------------------------------------------


def read_rows(found: dict[str, Any]) -> list[Peer]:
    return [
        Peer(
            name=name,
            engine=one["engine"],
            version=one.get("version", ""),
            config=one.get("meta", {}).get("CONFIG", ""),
            not_run=one.get("not_run", ""),
            single=_column(one.get("single", []), "rate"),
            bulk=_column(one.get("bulk", []), "rate"),
            how=one["bulk"][0]["how"] if one.get("bulk") else "",
            drain=_column(one.get("drain", []), "rate"),
            worker_us=_column(one.get("drain", []), "worker_cpu_us"),
            engine_us=_column(one.get("drain", []), "engine_cpu_us"),
            commits=_column(one.get("drain", []), "commits"),
        )
        for name, one in found["peers"].items()
    ]


def read_ceilings(into: Peers, found: dict[str, Any]) -> None:
    for name, value in found.get("ceilings", {}).items():
        if isinstance(value, int | float):
            into.ceilings.setdefault(name, []).append(value)


def read_pinned(into: Peers, found: dict[str, Any]) -> None:
    for name, one in found["peers"].items():
        row = into.row(name)
        if row is not None:
            row.pinned = _column(one.get("drain", []), "rate")


def read_pickups(into: Peers, found: dict[str, Any]) -> None:
    for name, one in found["peers"].items():
        row, waits = into.row(name), one.get("latency") or {}
        if row is not None and "p50" in waits:
            row.pickup_p50_ms.append(waits["p50"])
            row.pickup_p99_ms.append(waits["p99"])


def _column(rows: list[dict[str, Any]], key: str) -> list[float]:
    return [row[key] for row in rows if row.get(key) is not None]


def ceiling(found: Peers, start: str) -> tuple[str, float] | None:
    """The one whose name starts so."""
    for name, values in found.ceilings.items():
        if name.startswith(start):
            return name, median(values)
    return None
