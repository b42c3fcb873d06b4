"""The floors of the mix, worked out of one run. Pure: reads figures, gives checks."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean

from bench.figures import Check, middle
from bench.mix.figures import BEHIND, BESIDE, OURS, SET, Cell, Mix, Row

PGQUEUER_TIMES = 1.8
PGQUEUERS = ("pgqueuer", "pgqueuer-tuned")
"""Those that have as many jobs in progress as our worker."""
OVER_ALL = {SET: 0.9, BEHIND: 0.5}
"""What remains of the throughput with limits over all tenants."""
NOISE = 0.95
"""Two runs of the same code differ by as much within one run of the mix."""


def mix_checks(mix: Mix) -> list[Check]:
    """What this run can say; what was not measured is left out."""
    return [*_beside_pgqueuer(mix), *_beside_checkout(mix), *_over_all(mix)]


def _beside_pgqueuer(mix: Mix) -> Iterator[Check]:
    ours = mix.of(OURS)
    for name in PGQUEUERS:
        for cell, theirs in mix.of(name).items():
            if cell not in ours:
                continue
            what = f"{cell.store}: mix, drain at concurrency {cell.concurrency}"
            value = _ratio(middle(ours[cell].drain), middle(theirs.drain))
            yield Check(what=what, value=value, target=PGQUEUER_TIMES, against=name)


def _beside_checkout(mix: Mix) -> Iterator[Check]:
    """Each store with and without limits: the drain at each concurrency, and the enqueue.

    A ratio is the geometric mean over the counts of tenants, and for the enqueue over the
    concurrencies too, since a worker's concurrency is nothing to a client.
    """
    ours, theirs = mix.of(OURS), mix.of(BESIDE)
    cells = [cell for cell in ours if cell in theirs]
    for store, limits in dict.fromkeys((cell.store, cell.limits) for cell in cells):
        here = [cell for cell in cells if (cell.store, cell.limits) == (store, limits)]
        told = f"{store}: mix, {'with' if limits else 'without'} limits"
        yield _mean(f"{told}, enqueue", here, ours, theirs, "enqueue")
        for concurrency in dict.fromkeys(cell.concurrency for cell in here):
            some = [cell for cell in here if cell.concurrency == concurrency]
            what = f"{told}, settled at concurrency {concurrency}"
            yield _mean(what, some, ours, theirs, "settled")


def _over_all(mix: Mix) -> Iterator[Check]:
    """With limits over all tenants, and without, in the same tree: the work to its settled end."""
    free = mix.of(OURS)
    for name, target in OVER_ALL.items():
        for cell, limited in mix.of(name).items():
            if cell not in free:
                continue
            told = f"{cell.store}: mix, {cell.tenants:,} tenants, concurrency {cell.concurrency}"
            what = f"{told}, {'with' if cell.limits else 'without'} limits, {name}"
            value = _ratio(middle(limited.settled), middle(free[cell].settled))
            yield Check(what=what, value=value, target=target, against="no limit over all tenants")


def _mean(
    what: str, cells: list[Cell], ours: dict[Cell, Row], theirs: dict[Cell, Row], column: str
) -> Check:
    """Names the cell with the lowest ratio, which a mean would hide."""
    found: dict[Cell, float] = {}
    for cell in cells:
        pair = getattr(ours[cell], column), getattr(theirs[cell], column)
        ratio = _ratio(middle(pair[0]), middle(pair[1]))
        if ratio is None or not ratio:
            return Check(what=what, value=ratio, target=NOISE, against="the other checkout")
        found[cell] = ratio
    lowest = min(found, key=lambda cell: found[cell])
    against = f"the other checkout; lowest {found[lowest]:.2f} with {lowest.tenants:,} tenants"
    value = geometric_mean(found.values())
    return Check(what=what, value=value, target=NOISE, against=against)


def _ratio(mine: float | None, theirs: float | None) -> float | None:
    return None if mine is None or not theirs else mine / theirs
