"""`python -m tests.fuzz`: attacks the service as one tenant, while another works beside it.

Each store has a private server. It fails when any answer is a 5xx, when the innocent tenant notices
anything but a slower answer, when its p99 is more than three times its quiet one, or when the event
log, the counts or the doctor show a promise that was not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from functools import partial

from tests.fuzz.campaign import STORES, Found, Plan, campaign, p99

SLOWER_MOST = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--store", choices=list(STORES), action="append", help="all if not said")
    parser.add_argument("--minutes", type=float, default=30.0, help="of attack on each store")
    parser.add_argument("--rate", type=float, default=100.0, help="calls a second")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    given = parser.parse_args()
    failed = False
    for store in given.store or STORES:
        plan = Plan(store=store, seconds=given.minutes * 60, rate=given.rate, seed=given.seed)
        print(f"{store}: seed {plan.seed}", flush=True)
        found = asyncio.run(campaign(plan, partial(_say, store)))
        failed |= _told(store, found)
    sys.exit(failed)


def _say(store: str, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {store}: {text}", flush=True)


def _told(store: str, found: Found) -> bool:
    """Prints what came of it; True when something must not be."""
    quiet, beside = found.quiet, found.beside
    calls = sum(found.report.statuses.values())
    statuses = ", ".join(f"{one}: {n}" for one, n in sorted(found.report.statuses.items()))
    print(f"{store}: {calls} calls answered ({statuses}), {found.report.dropped} dropped")
    print(
        f"{store}: innocent tenant p99 {p99(quiet.times_ms):.1f} ms in {len(quiet.times_ms)} quiet"
        f" calls, {p99(beside.times_ms):.1f} ms in {len(beside.times_ms)} beside the attack:"
        f" {found.slower:.2f}x (at most {SLOWER_MOST:g}); {beside.jobs} jobs"
    )
    for fault in found.faults:
        print(f"{store}: FAULT {fault}")
    slow = found.slower > SLOWER_MOST
    if slow:
        print(f"{store}: FAULT the innocent tenant is {found.slower:.2f} times slower")
    print(f"{store}: {'FAILED' if slow or found.faults else 'clean'}", flush=True)
    return slow or bool(found.faults)


if __name__ == "__main__":
    main()
