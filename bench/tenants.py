"""`python -m bench.tenants --store URL`: fairness, the cost of a claim, the cost of each rule.

Ratios are what counts; figures are only comparable within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import msgspec

from bench import table
from bench.claims import blocked_cost, depth_cost, tenants_cost
from bench.fairness import Mix, Waits, fairness
from bench.rules import Drained, rules_cost
from bench.stores import Cost
from holdfast.stores import open_store

PARTS = ("fairness", "tenants", "blocked", "depth", "rules")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.tenants", description=__doc__)
    parser.add_argument("--store", help="store URL; a SQLite file in a temporary folder without")
    parser.add_argument("--part", action="append", choices=PARTS, help="repeat; all without")
    parser.add_argument("--scale", type=float, default=1.0, help="of all the numbers below")
    parser.add_argument("--loud", type=int, default=200_000, help="jobs of the loud tenant")
    parser.add_argument("--batch", type=int, default=200, help="jobs of one call of the loud one")
    parser.add_argument("--others", type=int, default=200, help="tenants that send steadily")
    parser.add_argument("--per-s", type=int, default=1_000, help="jobs they send in all, a second")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a fairness run")
    parser.add_argument("--many", type=int, default=100_000, help="tenants, or jobs blocked")
    parser.add_argument("--deep", type=int, default=1_000_000, help="jobs queued behind a claim")
    parser.add_argument("--jobs", type=int, default=15_000, help="of each drain")
    parser.add_argument("--rounds", type=int, default=5, help="of the drains; medians count")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        url = given.store or f"sqlite:///{folder}/bench.db"
        found = {part: asyncio.run(_measure(part, url, given)) for part in given.part or PARTS}
    if given.json:
        print(msgspec.json.encode(found).decode())
        return
    for part, figures in found.items():
        _SHOW[part](figures)


async def _measure(part: str, url: str, given: argparse.Namespace) -> Any:
    print(f"measuring {part} on {url.partition('?')[0]} ...", file=sys.stderr)
    if not open_store(url).capabilities.scopes and part in ("blocked", "depth", "rules"):
        return []
    many = max(200, int(given.many * given.scale))
    if part == "fairness":
        mix = Mix(
            loud=max(1000, int(given.loud * given.scale)),
            others=max(2, int(given.others * min(1.0, given.scale * 10))),
            per_s=given.per_s,
            batch=given.batch,
            seconds=max(0.5, given.seconds * min(1.0, given.scale * 2)),
        )
        return await fairness(url, mix)
    if part == "tenants":
        return await tenants_cost(url, many)
    if part == "blocked":
        return await blocked_cost(url, many)
    if part == "depth":
        return await depth_cost(url, max(2_000, int(given.deep * given.scale)))
    return await rules_cost(url, max(500, int(given.jobs * given.scale)), given.rounds)


# -- tables ----------------------------------------------------------------------------------------


def _show_waits(found: list[Waits]) -> None:
    quiet = found[0].p95_ms
    rows = [
        (
            one.case,
            f"{one.p50_ms:,.1f}",
            f"{'> ' if one.unserved > one.sent // 20 else ''}{one.p95_ms:,.1f}",
            f"{one.p95_ms / quiet:,.2f}",
            f"{one.sent - one.unserved:,} of {one.sent:,}",
        )
        for one in found
    ]
    _table("wait of the others", ("case", "p50 ms", "p95 ms", "ratio", "served"), rows)


def _show_costs(title: str) -> Any:
    def show(found: list[Cost]) -> None:
        rows = [(one.case, f"{one.us:,.1f}", f"{one.us / found[0].us:.2f}") for one in found]
        _table(title, ("case", "claim us", "ratio"), rows)

    return show


def _show_rules(found: list[Drained]) -> None:
    rows = [(one.rule, f"{one.per_s:,.0f}", f"{one.lost * 100:+.1f} %") for one in found]
    _table("drain with a rule", ("rule", "jobs/s", "lost"), rows)


def _show_depth(found: list[Cost]) -> None:
    """Each deep case beside its shallow one."""
    rows = []
    for shallow, deep in zip(found[::2], found[1::2], strict=True):
        rows += [
            (shallow.case, f"{shallow.us:,.0f}", "1.00"),
            (deep.case, f"{deep.us:,.0f}", f"{deep.us / shallow.us:.2f}"),
        ]
    _table("a claim of 100", ("jobs besides", "claim us", "ratio"), rows)


_SHOW: dict[str, Any] = {
    "fairness": _show_waits,
    "tenants": _show_costs("a claim over many tenants"),
    "blocked": _show_costs("a claim behind blocked jobs"),
    "depth": _show_depth,
    "rules": _show_rules,
}


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    print(f"\n{title}")
    if not rows:
        print("  this store keeps no scopes")
        return
    print("\n".join(table.lines(heads, rows, "  ")))


if __name__ == "__main__":
    main()
