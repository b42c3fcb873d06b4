"""The tables of a run. The terminal and the page show the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from bench import table
from bench.figures import Figures, Peer, Run, middle
from bench.mix.show import mix_about, mix_failed, mix_tables
from bench.table import Table, number

NOOP = "no-op jobs of about 100 bytes; leases, heartbeats and tokens on; retention 0"


def tables(run: Run) -> Iterator[Table]:
    """Those that have something to show."""
    if run.checks:
        yield _checks(run)
    if run.mix is not None:
        yield from mix_tables(run.mix)
    for make in (_main, _load, _depth, _growth, _rules, _scaling, _peers, _ceilings):
        made = make(run)
        if made.rows:
            yield made


def text(run: Run) -> Iterator[str]:
    """For the terminal."""
    yield "; ".join(f"{name} {value}" for name, value in run.made.items() if value)
    yield from [NOOP] if run.mix is None else mix_about(run.mix)
    for one in tables(run):
        yield f"\n{one.title}"
        yield from table.lines(one.heads, one.rows, "  ")
        if one.note:
            yield f"  {one.note}"
    for what in _failed(run):
        yield f"\n{what}"


def page(run: Run) -> Iterator[str]:
    """For a page in Markdown."""
    for name, value in run.made.items():
        if value:
            yield f"- {name}: {value}"
    sizes = ", ".join(f"{name} {_size(value)}" for name, value in run.sizes.items())
    yield f"- sizes: {sizes}"
    for line in () if run.mix is None else mix_about(run.mix):
        yield f"- {line}"
    for one in tables(run):
        yield f"\n#### {one.title}\n"
        yield from table.markdown(one.heads, one.rows)
        if one.note:
            yield f"\n{one.note}"
    for what in _failed(run):
        yield f"\nNot measured: {what}."


def _failed(run: Run) -> Iterator[str]:
    for store in run.stores:
        for name, why in store.failed.items():
            yield f"{store.store} {name} ({why})"
    if run.mix is not None:
        yield from mix_failed(run.mix)


def _size(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(_size(each) for each in value)
    if isinstance(value, bool):
        return "with" if value else "without"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


# -- each table ------------------------------------------------------------------------------------


def _checks(run: Run) -> Table:
    rows = [
        (
            one.what,
            number(one.value, 2),
            f"{'at most' if one.most else 'at least'} {number(one.target, 2)}",
            one.against,
            "met" if one.met else "NOT MET" if one.value is not None else "NOT MEASURED",
        )
        for one in run.checks
    ]
    met = sum(one.met for one in run.checks)
    note = f"{met} of {len(run.checks)} met."
    title = "Floors of the no-op" if run.mix is None else "Floors of the mix"
    return Table(title, ("ratio", "found", "target", "against", "verdict"), rows, note)


def _main(run: Run) -> Table:
    heads = (
        *("store", "version", "single/s", "100 in flight/s", "bulk/s", "drain/s"),
        *("worker us/job", "engine us/job", "pick-up p50 ms", "p99 ms"),
    )
    rows = [
        (
            one.store,
            one.version,
            number(middle(one.single)),
            number(middle(one.concurrent)),
            number(middle(one.bulk)),
            number(middle(one.drain)),
            number(middle(one.worker_us), 1),
            number(middle(one.engine_us) or None, 1),
            number(middle(one.pickup_p50_ms), 2),
            number(middle(one.pickup_p99_ms), 2),
        )
        for one in run.stores
    ]
    settings = "; ".join(f"{one.store}: {one.settings}" for one in run.stores if one.settings)
    return Table("Holdfast on each store", heads, rows, settings)


def _load(run: Run) -> Table:
    rows = [
        (
            store.store,
            number(store.load[0].per_s),
            number(median(one.p50_ms for one in store.load), 2),
            number(median(one.p99_ms for one in store.load), 2),
        )
        for store in run.stores
        if store.load
    ]
    return Table("Waits at 50 % load", ("store", "jobs/s", "p50 ms", "p99 ms"), rows)


def _depth(run: Run) -> Table:
    rows = [
        (
            store.store,
            number(one.queued),
            number(one.per_s),
            number(one.per_s / store.depth[0].per_s, 2),
            number(one.worker_mb),
            number(one.engine_mb, 1),
        )
        for store in run.stores
        for one in store.depth
    ]
    heads = ("store", "queued", "drain/s", "ratio", "worker MB", "engine MB")
    return Table("Few and many queued", heads, rows)


def _growth(run: Run) -> Table:
    rows = [
        (store.store, many.case, number(few.us), number(many.us), number(many.us / few.us, 2))
        for store in run.stores
        for few, many in zip(store.growth[::2], store.growth[1::2], strict=True)
    ]
    heads = ("store", "jobs besides", "with 1,000 us", "with these us", "ratio")
    return Table("A claim of 100 jobs", heads, rows)


def _rules(run: Run) -> Table:
    """Rules downwards, stores across."""
    measured = [store for store in run.stores if store.rules]
    names = list(dict.fromkeys(one.rule for store in measured for one in store.rules))
    rows = [(name, *(_rule(store, name) for store in measured)) for name in names if name != "none"]
    plain = "; ".join(f"{one.store} {number(one.rules[0].per_s)}/s" for one in measured)
    heads = ("rule", *(store.store for store in measured))
    note = f"Change of the drain by it; none beside none is the noise. Without any: {plain}."
    return Table("What each rule costs", heads, rows, note)


def _rule(store: Figures, name: str) -> str:
    found = [one for one in store.rules if one.rule == name]
    return f"{-found[0].lost * 100:+.0f} %" if found else ""


def _scaling(run: Run) -> Table:
    rows = [
        (
            store.store,
            *(number(one.per_s) for one in store.scaling),
            number(min(one.per_s for one in store.scaling) / store.scaling[0].per_s, 2),
        )
        for store in run.stores
        if store.scaling
    ]
    counts = next((store.scaling for store in run.stores if store.scaling), [])
    heads = ("store", *(f"by {one.processes}" for one in counts), "lowest to first")
    return Table("Drain by several worker processes, jobs/s", heads, rows)


def _peers(run: Run) -> Table:
    heads = (
        *("system", "engine", "version", "single/s", "100 in flight/s", "bulk/s", "drain/s"),
        *("worker us/job", "engine us/job", "pick-up p50 ms", "p99 ms"),
    )
    rows = sorted(run.peers.rows if run.peers else [], key=_rank)
    in_flight = any(one.concurrent for one in rows)
    note = "A drain is the better one of those pinned to a core and not, where both were measured."
    commits = [each for one in rows for each in one.commits]
    if commits:  # which tells how busy the machine was
        shown = f"{number(min(commits))} to {number(max(commits))}"
        note += f" PostgreSQL did {shown} commits of one row a second just before its drains."
    return Table(
        "Beside other queues, one worker process",
        heads,
        [_peer(one, in_flight) for one in rows],
        note,
    )


def _rank(one: Peer) -> tuple[str, float]:
    return one.engine, -(one.best_drain or 0.0)


def _peer(one: Peer, in_flight: bool) -> tuple[str, ...]:
    if one.not_run:
        return (one.name, one.engine, "not run", *[""] * 8)
    return (
        one.name,
        one.engine,
        one.version,
        number(middle(one.single)),
        number(one.best_concurrent if in_flight else None),
        number(middle(one.bulk)),
        number(one.best_drain),
        number(middle(one.worker_us), 1),
        number(middle(one.engine_us) or None, 1),
        number(middle(one.pickup_p50_ms), 2),
        number(middle(one.pickup_p99_ms), 2),
    )


def _ceilings(run: Run) -> Table:
    found = run.peers.ceilings if run.peers else {}
    rows = [(name, number(median(values))) for name, values in found.items()]
    return Table("The engines without a queue", ("ceiling", "per second"), rows)
