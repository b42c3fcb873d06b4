"""`python -m bench`: prints the figures with their setting; `--json` for machines."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile

import msgspec

from bench.measure import Figures, Setting, measure

HEAD = (
    "store",
    "single/s",
    "100 at once/s",
    "bulk/s",
    "drain/s",
    "cpu us/job",
    "pick-up p50/p99 ms",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--store", action="append", help="store URL; repeat for several")
    parser.add_argument("--jobs", type=int, default=30_000, help="jobs of the bulk and drain runs")
    parser.add_argument("--singles", type=int, default=2_000, help="jobs enqueued one by one")
    parser.add_argument("--pickups", type=int, default=200, help="samples of the pick-up latency")
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        stores = given.store or [
            "memory://",
            f"sqlite:///{folder}/full.db?synchronous=full",
            f"sqlite:///{folder}/normal.db?synchronous=normal",
        ]
        figures = []
        for store in stores:
            print(f"measuring {_shown(store)} ...", file=sys.stderr)
            setting = Setting(
                store=store,
                jobs=given.jobs,
                singles=given.singles,
                concurrency=given.concurrency,
                pickups=given.pickups,
            )
            figures.append(asyncio.run(measure(setting)))
    if given.json:
        print(msgspec.json.encode(figures).decode())
        return
    print(
        "no-op async jobs of about 100 bytes, one worker process, "
        f"concurrency {given.concurrency}, "
        f"{given.jobs} jobs, retention 0, leases, heartbeats and events on; "
        f"Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    _table(figures)


def _table(figures: list[Figures]) -> None:
    rows = [HEAD, *(_row(one) for one in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _row(one: Figures) -> tuple[str, ...]:
    return (
        _shown(one.store),
        f"{one.single:,.0f}",
        f"{one.concurrent:,.0f}",
        f"{one.bulk:,.0f}",
        f"{one.drain:,.0f}",
        f"{one.drain_cpu_us:.1f}",
        f"{one.pickup_p50_ms:.2f} / {one.pickup_p99_ms:.2f}",
    )


def _shown(store: str) -> str:
    """The URL without its folder."""
    scheme, _, rest = store.partition("://")
    return f"{scheme}://{rest.rpartition('/')[2]}"


main()
