"""`./scripts/bench`: what this machine does, on every store, and with --peers beside other queues.

Figures are only comparable within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

import msgspec

from bench import show
from bench.charts import write_charts
from bench.figures import Peers, Run
from bench.measure import MEASURES, Bench, Sizes
from bench.peers import ALL as PEER_MEASURES
from bench.peers import FASTEST, HARNESS, NoHarness, find_harness, measure_peers
from bench.places import NAMES, Missing, place
from bench.run_info import keep, made, say
from bench.verdict import checks


def main() -> None:
    given = _arguments()
    # So that every server and child is ended on the way out, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sizes = Sizes.quick() if given.quick else Sizes()
    if given.rounds:
        sizes = msgspec.structs.replace(sizes, rounds=given.rounds)
    if given.deep:
        sizes = msgspec.structs.replace(sizes, deep=given.deep)
    stopped = False
    run = Run(made=made(), sizes=msgspec.structs.asdict(sizes))
    try:
        harness = None if given.peers is None else find_harness(given.harness)
        _measure_stores(run, given, sizes)
        if harness is not None:
            run.peers = Peers()
            measure_peers(
                harness,
                _peers(given.peers),
                sizes,
                say,
                found=run.peers,
                keep=lambda: keep(run, given.json),
                measures=given.peer_measures,
            )
    except NoHarness as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        stopped = True
        say("stopped; what was measured so far follows")
    run.made["minutes"] = f"{(time.monotonic() - STARTED) / 60:.0f}"
    run.checks = checks(run)
    keep(run, given.json)
    print("\n".join(show.text(run)))
    if given.charts:
        for path in write_charts(run, Path(given.charts)):
            say(f"wrote {path}")
    if stopped:
        sys.exit(130)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--store",
        "--only",
        action="append",
        metavar="NAME",
        help=f"one of {', '.join(NAMES)}, or a store URL; repeat or join by commas; all without",
    )
    parser.add_argument(
        "--measures",
        metavar="NAMES",
        help=f"of {', '.join(MEASURES)}, or none; all without. Peers: enqueue, drain, pickup",
    )
    parser.add_argument("--rounds", type=int, help="of each measure; medians count (default 3)")
    parser.add_argument("--deep", type=int, help="jobs of the deep queue (default 1,000,000)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that all works")
    parser.add_argument(
        "--peers",
        nargs="?",
        const="",
        metavar="NAMES",
        help="also the other queues, and the ratios; by default the fastest of each engine",
    )
    parser.add_argument("--harness", metavar="DIR", help=f"of the peers; or {HARNESS}")
    parser.add_argument("--json", metavar="FILE", help="writes all figures there")
    parser.add_argument("--charts", metavar="DIR", help="writes SVG charts there")
    given = parser.parse_args()
    # Ceilings and peers with 100 in flight take long: they belong to a run of everything.
    asked = _names(given.measures)
    given.peer_measures = PEER_MEASURES if asked in ([], ["none"]) else asked
    given.measures = asked or list(MEASURES)
    for name in given.measures:
        if name not in (*MEASURES, "none"):
            parser.error(f"there is no measure {name!r}: {', '.join(MEASURES)}")
    given.store = [name for each in given.store or NAMES for name in _names(each)]
    for name in given.store:
        if name not in NAMES and "://" not in name:
            parser.error(f"there is no store {name!r}: {', '.join(NAMES)}, or a URL")
    return given


def _names(given: str | None) -> list[str]:
    return [name for name in (given or "").split(",") if name]


def _peers(given: str) -> list[str]:
    return _names(given) or list(FASTEST)


def _measure_stores(run: Run, given: argparse.Namespace, sizes: Sizes) -> None:
    """Each store with its own server; what was found is kept also when the next one fails."""
    measures = [name for name in MEASURES if name in given.measures]
    for name in given.store if measures else ():
        try:
            with place(name) as where:
                say(f"{name} {where.version}")
                bench = Bench(where, sizes, say)
                run.stores.append(bench.found)
                asyncio.run(bench.run(measures))
        except Missing as lack:
            say(f"{name}: not measured: {lack}")
        keep(run, given.json)


STARTED = time.monotonic()

if __name__ == "__main__":
    main()
