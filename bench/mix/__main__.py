"""`python -m bench.mix`: the jobs of a web product on each store, and with --peers beside others.

Five job types in five queues, payloads of 50 to 1,500 bytes, one enqueue call per job with a
hundred callers in flight, all defaults (jobs are kept for 24 hours, events are on), one worker
process. Figures are only comparable within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import show
from bench.figures import Run
from bench.mix.contestants import Contestant, NoCheckout, beside, over_all, own, peers
from bench.mix.figures import Mix
from bench.mix.measure import Bench, Shape
from bench.peers import HARNESS, NoHarness
from bench.places import NAMES, Missing, place
from bench.run_info import keep, made, say
from bench.verdict import checks

LIMITS = {"with": True, "without": False}


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    # So that every server and child is ended on the way out, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shape, begun, stopped = _shape(given), time.monotonic(), False
    mix = Mix()
    run = Run(made=made(), sizes=msgspec.to_builtins(shape), mix=mix)
    try:
        contestants = _contestants(given, shape)
        mix.entries = [one.entry for one in contestants]
        say(f"about {shape.minutes(contestants):.1f} minutes on an idle machine")
        _measure(run, shape, contestants, given.json)
    except (NoHarness, NoCheckout) as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        stopped = True
        say("stopped; what was measured so far follows")
    run.made["minutes"] = f"{(time.monotonic() - begun) / 60:.1f}"
    run.checks = checks(run)
    keep(run, given.json)
    print("\n".join(show.text(run)))
    if stopped:
        sys.exit(130)


def _measure(run: Run, shape: Shape, contestants: Sequence[Contestant], path: str | None) -> None:
    assert run.mix is not None
    bench = Bench(shape, contestants, run.mix, say)
    for name in shape.stores:
        try:
            with place(name) as where:
                asyncio.run(bench.store(where))
        except Missing as lack:
            say(f"{name}: not measured: {lack}")
        keep(run, path)


def _contestants(given: argparse.Namespace, shape: Shape) -> list[Contestant]:
    found = [own()]
    if given.beside is not None:
        found.append(beside(given.beside))
    if given.platform:
        found += over_all()
    if given.peers:
        found += peers(given.harness, shape.stores, say)
    return found


def _shape(given: argparse.Namespace) -> Shape:
    said = {
        name: value
        for name in ("jobs", "rounds", "tenants", "concurrency", "limits", "stores", "minutes_max")
        if (value := getattr(given, name)) is not None
    }
    return msgspec.structs.replace(Shape.quick() if given.quick else Shape(), **said)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.mix", description=__doc__)
    usual = Shape()
    parser.add_argument("--stores", type=_stores, help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--jobs", type=int, help=f"default {usual.jobs:,}; twice on memory, redis")
    parser.add_argument("--rounds", type=int, help=f"medians count (default {usual.rounds})")
    parser.add_argument("--tenants", type=_numbers, help="default 1,20,1000")
    parser.add_argument("--concurrency", type=_numbers, help="default 10,100")
    parser.add_argument("--limits", type=_limits, help="with, without, or both (default)")
    parser.add_argument(
        "--minutes-max",
        type=float,
        help=f"no run begins later than this (default {usual.minutes_max:.0f})",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that all works")
    parser.add_argument(
        "--peers", action="store_true", help="also pgqueuer, dramatiq, saq and huey"
    )
    parser.add_argument("--platform", action="store_true", help="also with limits over all tenants")
    parser.add_argument("--harness", metavar="DIR", help=f"of the peers; or {HARNESS}")
    parser.add_argument(
        "--beside", type=Path, metavar="PATH", help="also the code of another checkout"
    )
    parser.add_argument("--json", metavar="FILE", help="writes all figures there")
    return parser.parse_args(arguments)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def _stores(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"no store {name!r}: {', '.join(NAMES)}")
    return names


def _limits(text: str) -> tuple[bool, ...]:
    try:
        return tuple(LIMITS[each] for each in text.split(","))
    except KeyError as unknown:
        raise argparse.ArgumentTypeError(f"{unknown} is neither with nor without") from None


if __name__ == "__main__":
    main()
