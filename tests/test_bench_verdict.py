"""The targets are worked out of the figures, each against the right peer."""

from __future__ import annotations

from bench.figures import Check, Depth, Figures, Peer, Peers, Run
from bench.verdict import checks


def _peer(name: str, engine: str = "redis", **figures: list[float]) -> Peer:
    return Peer(name=name, engine=engine, **figures)  # type: ignore[arg-type]


def _found(*rows: Peer) -> dict[str, Check]:
    run = Run(made={}, peers=Peers(rows=list(rows)))
    return {one.what: one for one in checks(run)}


def test_a_drain_on_redis_is_compared_with_those_that_survive_a_kill() -> None:
    """One that loses jobs may be faster; it does not count."""
    found = _found(
        _peer("holdfast_redis", drain=[40.0, 50.0, 60.0]),
        _peer("dramatiq", drain=[4.0], pinned=[10.0]),
        _peer("huey_redis", drain=[100.0]),
        _peer("pgqueuer", "postgres", drain=[100.0]),
    )

    drain = found["Redis: drain"]
    assert (drain.value, drain.target, drain.against, drain.met) == (5.0, 4, "dramatiq", True)


def test_a_drain_in_which_nothing_ran_is_not_met() -> None:
    """It is a figure, and the worst; a measure that was left out is none."""
    found = _found(_peer("holdfast_redis", drain=[0.0]), _peer("dramatiq", drain=[4.0]))

    assert {name: one.value for name, one in found.items()} == {"Redis: drain": 0.0}


def test_a_rival_that_failed_does_not_count_as_a_slow_one() -> None:
    """The fastest may have been that one: it is named, and alone it leaves the target open."""
    ours, dead = _peer("holdfast_redis", drain=[50.0]), _peer("streaq", drain=[0.0])

    beside = _found(ours, dead, _peer("dramatiq", drain=[10.0]))["Redis: drain"]
    alone = _found(ours, dead)["Redis: drain"]

    assert (beside.value, beside.against) == (5.0, "dramatiq (no figure: streaq)")
    assert (alone.value, alone.met, alone.against) == (None, False, "(no figure: streaq)")


def test_a_flushed_enqueue_is_compared_with_flushed_ones() -> None:
    """On SQLite a setting decides what a return means."""
    rows = (
        _peer("holdfast_sqlite_full", "sqlite", single=[5.0]),
        _peer("holdfast_sqlite_normal", "sqlite", single=[20.0]),
        _peer("huey_sqlite", "sqlite", single=[90.0]),
        _peer("huey_sqlite_full", "sqlite", single=[4.0]),
        _peer("litequeue", "sqlite", single=[25.0]),
    )

    found = _found(*rows)

    assert found["SQLite FULL: enqueue one by one"].against == "huey_sqlite_full"
    assert found["SQLite NORMAL: enqueue one by one"].against == "litequeue"


def test_a_drain_on_sqlite_is_compared_with_huey_of_the_same_durability() -> None:
    """One that does not wait for the disk is no measure for one that does."""
    rows = (
        _peer("holdfast_sqlite_full", "sqlite", drain=[12.0]),
        _peer("holdfast_sqlite_normal", "sqlite", drain=[40.0]),
        _peer("huey_sqlite", "sqlite", drain=[15.0]),
        _peer("huey_sqlite_normal", "sqlite", drain=[8.0], pinned=[10.0]),
        _peer("huey_sqlite_full", "sqlite", drain=[3.0]),
        _peer("litequeue", "sqlite", drain=[11.0]),
    )

    found = _found(*rows)

    full, normal = found["SQLite FULL: drain"], found["SQLite NORMAL: drain"]
    assert (full.value, full.target, full.against) == (4.0, 4, "huey_sqlite_full")
    assert (normal.value, normal.target, normal.against) == (4.0, 4, "huey_sqlite_normal")


def test_the_floors_of_an_enqueue_depend_on_the_engine() -> None:
    """One by one and in bulk, each against the fastest."""
    found = _found(
        _peer("holdfast_postgres", "postgres", single=[9.0], bulk=[60.0]),
        _peer("pgqueuer", "postgres", single=[10.0], bulk=[40.0]),
        _peer("chancy", "postgres", single=[5.0], bulk=[4.0]),
    )

    single, bulk = found["PostgreSQL: enqueue one by one"], found["PostgreSQL: bulk enqueue"]
    assert (single.value, single.target, single.met) == (0.9, 0.9, True)
    assert (bulk.value, bulk.target, bulk.against) == (1.5, 1.5, "pgqueuer")


def test_a_pick_up_may_not_be_later_than_the_best_one() -> None:
    """And its worst hundredth is bounded for itself."""
    found = _found(
        _peer("holdfast_redis", pickup_p50_ms=[1.0], pickup_p99_ms=[30.0]),
        _peer("dramatiq", pickup_p50_ms=[10.0], pickup_p99_ms=[800.0]),
        _peer("huey_redis", pickup_p50_ms=[0.9], pickup_p99_ms=[1.5]),
    )

    p50, p99 = found["Redis: pick-up p50, ms"], found["Redis: pick-up p99, ms"]
    assert (p50.target, p50.against, p50.met) == (0.9, "huey_redis", False)
    assert not p99.met


def test_what_was_not_run_is_left_out() -> None:
    """No figure is not a bad figure."""
    assert _found(Peer(name="holdfast_redis", engine="redis", not_run="no server")) == {}
    assert _found(_peer("dramatiq", drain=[4.0])) == {}


def test_a_store_is_held_to_what_needs_no_peer() -> None:
    """Floor, CPU, depth and flat memory."""
    few = Depth(queued=10, per_s=100.0, worker_mb=50.0, engine_mb=1.0)
    many = Depth(queued=1000, per_s=70.0, worker_mb=55.0, engine_mb=100.0)
    store = Figures(store="redis", drain=[50.0], floor=[100.0], worker_us=[31.0], depth=[few, many])

    found = {one.what: one.met for one in checks(Run(made={}, stores=[store]))}

    assert found == {
        "redis: drain, of the bare floor": True,
        "redis: worker CPU, us a job (own run)": False,
        "redis: drain of 1,000 queued": False,
        "redis: worker's memory with 1,000 queued": True,
    }
