"""The targets are worked out of the figures, each against the right peer."""

from __future__ import annotations

from bench.figures import Check, Depth, Figures, Peer, Peers, Run
from bench.verdict import checks

LUA = "Lua claim 100 with lease + ack 100, redis-py asyncio, 1 loop (at-least-once)"


def _peer(name: str, engine: str = "redis", **figures: list[float]) -> Peer:
    return Peer(name=name, engine=engine, **figures)  # type: ignore[arg-type]


def _found(*rows: Peer, ceilings: dict[str, list[float]] | None = None) -> dict[str, Check]:
    run = Run(made={}, peers=Peers(rows=list(rows), ceilings=ceilings or {}))
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
    assert (drain.value, drain.target, drain.against, drain.met) == (5.0, 5, "dramatiq", True)


def test_a_drain_is_compared_with_the_ceiling_of_its_engine() -> None:
    """By the start of its name; the medians of both count."""
    found = _found(_peer("holdfast_redis", drain=[25.0]), ceilings={LUA: [90.0, 100.0, 110.0]})

    drain = found["Redis: drain, of the ceiling"]
    assert (drain.value, drain.met) == (0.25, False)


def test_a_drain_in_which_nothing_ran_is_not_met() -> None:
    """It is a figure, and the worst; a measure that was left out is none."""
    found = _found(
        _peer("holdfast_redis", drain=[0.0]),
        _peer("dramatiq", drain=[4.0]),
        ceilings={LUA: [100.0]},
    )

    assert {name: one.value for name, one in found.items()} == {
        "Redis: drain": 0.0,
        "Redis: drain, of the ceiling": 0.0,
    }


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


def test_a_peer_without_several_at_once_counts_with_its_best_way() -> None:
    """A gather of a hundred is what its bulk figure was made with."""
    found = _found(
        _peer("holdfast_redis", concurrent=[60.0]),
        Peer(name="saq_redis", engine="redis", single=[5.0], bulk=[12.0], how="gather x100"),
        Peer(name="streaq", engine="redis", single=[5.0], bulk=[50.0], how="bulk API"),
    )

    flight = found["Redis: 100 enqueues in flight"]
    assert (flight.value, flight.against) == (5.0, "saq_redis")


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
