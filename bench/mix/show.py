"""The tables of the mix. The terminal and the page show the same ones."""

from __future__ import annotations

from collections.abc import Iterator

from bench.figures import middle
from bench.mix.figures import HOLDFAST, Cell, Mix, Row
from bench.table import Table, number

HEADS = (
    *("contestant", "tenants", "concurrency", "limits", "enqueue/s", "drain/s", "settled/s"),
    *("worker us/job", "engine us/job"),
)
ABOUT = (
    "five job types in five queues, payloads of 50 to 1,500 bytes, one enqueue call per job by "
    "100 callers in flight, one worker process, handlers do nothing; twice as many jobs on memory "
    "and redis",
    "drain: from the first handler's start to the last one's end, the same for all; settled: to "
    "the store's answer to the last ack, which only Holdfast tells",
)


def mix_tables(mix: Mix) -> Iterator[Table]:
    """One table per store: Holdfast, the other checkout and the peers of that store."""
    for store, settings in mix.stores.items():
        rows = sorted((one for one in mix.rows if one.cell.store == store), key=_place)
        if rows:
            yield Table(f"The mix on {store}", HEADS, [_row(one) for one in rows], settings)


def mix_about(mix: Mix) -> Iterator[str]:
    """What is measured and who took part, for the list above the tables."""
    yield from ABOUT
    for one in mix.entries:
        settings = f" ({one.settings})" if one.settings else ""
        yield f"{one.name}: {one.version}{settings}"


def mix_failed(mix: Mix) -> Iterator[str]:
    for row in mix.rows:
        for why in row.failed:
            yield f"{row.contestant}, {row.cell.told()}: {why}"


def _place(row: Row) -> tuple[bool, int, int, int, str]:
    """Cells in order; within one, ours first."""
    cell, ranks = row.cell, {name: rank for rank, name in enumerate(HOLDFAST)}
    first = ranks.get(row.contestant, len(ranks))
    return cell.limits, cell.tenants, cell.concurrency, first, row.contestant


def _row(row: Row) -> tuple[str, ...]:
    cell: Cell = row.cell
    return (
        row.contestant,
        f"{cell.tenants:,}",
        f"{cell.concurrency}",
        "with" if cell.limits else "without",
        number(middle(row.enqueue)),
        number(middle(row.drain)),
        number(middle(row.settled)),
        number(middle(row.worker_us), 1),
        number(middle(row.engine_us) or None, 1),
    )
