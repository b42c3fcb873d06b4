"""Rows, limits, watches, the life of a transaction: on the engine and on a real cluster."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.foundationdb_engine.cluster import Cluster


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


# -- read-your-writes ----------------------------------------------------------------------------


def test_a_transaction_sees_its_own_writes(cluster: Cluster) -> None:
    """Sets, clears and atomic operations, over what is there; nobody else sees them yet."""
    cluster.put(b"a", b"b", b"n", value=number(1))
    tr = cluster.db.create_transaction()
    tr[cluster.key(b"a")] = b"own"
    del tr[cluster.key(b"b")]
    tr.add(cluster.key(b"n"), number(2))

    assert tr[cluster.key(b"a")].value == b"own"
    assert not tr[cluster.key(b"b")].present()
    assert tr[cluster.key(b"n")].value == number(3)
    assert cluster.value(b"a") == number(1)


def test_a_range_shows_the_own_writes_in_their_places(cluster: Cluster) -> None:
    """New keys between the old ones, cleared ones gone, in both directions and with a limit."""
    cluster.put(b"a", b"c", b"e", b"g")
    tr = cluster.db.create_transaction()
    tr[cluster.key(b"b")] = b"own"
    tr.clear_range(cluster.key(b"c"), cluster.key(b"f"))
    tr[cluster.key(b"d")] = b"own"
    tr.add(cluster.key(b"h"), b"\1")

    assert cluster.names(tr) == [b"a", b"b", b"d", b"g", b"h"]
    assert cluster.names(tr, reverse=True, limit=3) == [b"h", b"g", b"d"]
    assert cluster.names(tr.snapshot, limit=2) == [b"a", b"b"]


def test_reads_stay_at_one_version(cluster: Cluster) -> None:
    """What others commit in the meantime is not seen; what they cleared still is."""
    cluster.put(b"a", b"b")
    tr = cluster.db.create_transaction()
    tr.get_read_version().wait()
    other = cluster.db.create_transaction()
    other.clear_range(*cluster.span())
    other[cluster.key(b"c")] = b"new"
    other.commit().wait()

    assert cluster.names(tr) == [b"a", b"b"]
    assert tr[cluster.key(b"a")].value == b"old"
    assert cluster.names() == [b"c"]


def test_a_commit_is_seen_by_every_transaction_that_begins_after_it(cluster: Cluster) -> None:
    """Its read version is not older than the commit."""
    version = cluster.put(b"a")
    tr = cluster.db.create_transaction()

    assert tr.get_read_version().wait() >= version
    assert tr[cluster.key(b"a")].value == b"old"


def test_commit_versions_strictly_grow(cluster: Cluster) -> None:
    """For commits one after the other."""
    versions = [cluster.put(b"a") for _ in range(20)]

    assert versions == sorted(set(versions))


def test_without_read_your_writes_a_transaction_reads_what_was_there(cluster: Cluster) -> None:
    """Its option says so; watches are not to be had then: 1034."""
    cluster.put(b"a")
    tr = cluster.db.create_transaction()
    tr.options.set_read_your_writes_disable()
    tr[cluster.key(b"a")] = b"own"

    assert tr[cluster.key(b"a")].value == b"old"
    cluster.assert_fails(1034, lambda: tr.watch(cluster.key(b"a")))


def test_a_write_without_a_conflict_range_disturbs_nobody_who_read_the_key(
    cluster: Cluster,
) -> None:
    """The next write only, after its option."""
    silent, reader = cluster.db.create_transaction(), cluster.db.create_transaction()
    reader[cluster.key(b"a")].wait()
    reader[cluster.key(b"b")] = b"1"
    silent.options.set_next_write_no_write_conflict_range()
    silent[cluster.key(b"a")] = b"1"
    silent[cluster.key(b"c")] = b"1"
    silent.commit().wait()

    reader.commit().wait()

    assert cluster.names() == [b"a", b"b", b"c"]


def test_a_read_version_is_set_once(cluster: Cluster) -> None:
    """2010 for the second time, told by the next call that has an answer."""
    tr = cluster.db.create_transaction()
    version = tr.get_read_version().wait()
    tr.set_read_version(version)

    cluster.assert_fails(2010, lambda: tr.get(cluster.key(b"a")))


# -- rows and selectors --------------------------------------------------------------------------


def test_one_answer_of_a_range_is_rows_their_number_and_whether_there_may_be_more(
    cluster: Cluster,
) -> None:
    """As the binding's future gives it."""
    cluster.put(b"a", b"b", b"c")
    pick = cluster.binding.KeySelector.first_greater_or_equal
    begin, end = (pick(key) for key in cluster.span())
    tr = cluster.db.create_transaction()
    exact, want_all = 0, -2

    rows, count, more = tr._get_range(begin, end, 2, exact, 1, False).wait()
    assert ([row.value for row in rows], count, bool(more)) == ([b"old"] * 2, 2, True)
    rows, count, more = tr._get_range(begin, end, 0, want_all, 1, True).wait()
    assert ([row.key for row in rows][-1], count, bool(more)) == (cluster.key(b"a"), 3, False)


def test_a_long_range_comes_in_several_answers(cluster: Cluster) -> None:
    """All rows of it, in order, as somebody iterates."""
    names = [f"{each:03}".encode() for each in range(300)]
    cluster.put(*names, value=b"x" * 1_000)
    tr = cluster.db.create_transaction()

    assert [row.key for row in tr.get_range(*cluster.span())] == [*map(cluster.key, names)]
    assert cluster.names(tr, reverse=True) == names[::-1]
    assert cluster.names(tr, limit=250) == names[:250]


def test_selectors_find_keys_by_their_place(cluster: Cluster) -> None:
    """Before, at and after a key, some places on."""
    cluster.put(b"a", b"b", b"c", b"d")
    selector, tr = cluster.binding.KeySelector, cluster.db.create_transaction()
    at = cluster.key(b"b")

    def found(selected: Any) -> Any:
        return tr.get_key(selected).value

    assert found(selector.last_less_than(at)) == cluster.key(b"a")
    assert found(selector.last_less_or_equal(at)) == cluster.key(b"b")
    assert found(selector.first_greater_or_equal(at)) == cluster.key(b"b")
    assert found(selector.first_greater_than(at)) == cluster.key(b"c")
    assert found(selector.first_greater_than(at) + 1) == cluster.key(b"d")
    assert cluster.names(tr)[0] == b"a"


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [(10_001, 1, 2102), (1, 100_001, 2103), (10_000, 100_000, 0)],
    ids=["key", "value", "largest"],
)
def test_keys_and_values_have_limits(cluster: Cluster, key: int, value: int, code: int) -> None:
    """10,000 and 100,000 bytes. A write has no answer: its error comes with the commit."""
    tr = cluster.db.create_transaction()
    tr[cluster.key(b"k").ljust(key, b"k")] = b"v" * value

    if code:
        cluster.assert_fails(code, tr.commit)
    else:
        tr.commit().wait()
        assert len(cluster.names()) == 1


def test_a_transaction_has_a_limit(cluster: Cluster) -> None:
    """10,000,000 bytes, or what its option says: 2101."""
    large, small = cluster.db.create_transaction(), cluster.db.create_transaction()
    for place in range(101):
        large[cluster.key(b"%d" % place)] = bytes(100_000)
    small.options.set_size_limit(1_000)
    small[cluster.key(b"k")] = bytes(1_001)

    cluster.assert_fails(2101, large.commit)
    cluster.assert_fails(2101, small.commit)


def test_system_keys_and_inverted_ranges_are_refused(cluster: Cluster) -> None:
    """2004 and 2005, told by the next call that has an answer."""
    tr = cluster.db.create_transaction()
    cluster.assert_fails(2004, lambda: tr.get(b"\xff\x01"))
    tr.clear_range(cluster.key(b"b"), cluster.key(b"a"))
    cluster.assert_fails(2005, tr.commit)


def test_an_old_version_is_too_old(cluster: Cluster) -> None:
    """1007 for reads, and for commits, also of a blind write that names its version."""
    tr = cluster.db.create_transaction()
    old = tr.get_read_version().wait() - 6_000_000
    reader, blind = cluster.db.create_transaction(), cluster.db.create_transaction()
    for each in (reader, blind):
        each.set_read_version(old)
    blind[cluster.key(b"k")] = b"v"

    cluster.assert_fails(1007, lambda: reader.get(cluster.key(b"k")))
    cluster.assert_fails(1007, blind.commit)


def test_a_version_ahead_of_time_cannot_be_read(cluster: Cluster) -> None:
    """1009."""
    tr = cluster.db.create_transaction()
    ahead = tr.get_read_version().wait() + 1_000_000_000
    tr = cluster.db.create_transaction()
    tr.set_read_version(ahead)

    cluster.assert_fails(1009, lambda: tr.get(cluster.key(b"k")))


# -- watches -------------------------------------------------------------------------------------


def watch(cluster: Cluster, name: bytes) -> Any:
    tr = cluster.db.create_transaction()
    future = tr.watch(cluster.key(name))
    tr.commit().wait()
    return future


def fired(future: Any) -> threading.Event:
    event = threading.Event()
    future.on_ready(lambda _: event.set())
    return event


def test_a_watch_fires_when_the_value_is_another(cluster: Cluster) -> None:
    """Set, changed or cleared."""
    for change in (b"1", b"2", None):
        future = watch(cluster, b"k")
        told = fired(future)
        tr = cluster.db.create_transaction()
        if change is None:
            del tr[cluster.key(b"k")]
        else:
            tr[cluster.key(b"k")] = change
        assert not future.is_ready()
        tr.commit().wait()

        assert told.wait(10)
        future.wait()


def test_a_watch_does_not_fire_when_the_same_value_is_written(cluster: Cluster) -> None:
    """Nor when another key changes; the next change shows that it lives."""
    cluster.put(b"k")
    future = watch(cluster, b"k")
    cluster.put(b"k", b"other")
    told = fired(future)

    assert not told.wait(0.05)
    cluster.put(b"k", value=b"new")
    assert told.wait(10)


def test_a_watch_of_an_own_write_waits_for_the_next_one(cluster: Cluster) -> None:
    """It compares with what its transaction wrote."""
    tr = cluster.db.create_transaction()
    tr[cluster.key(b"k")] = b"own"
    future = tr.watch(cluster.key(b"k"))
    tr.commit().wait()
    told = fired(future)

    assert not told.wait(0.05)
    cluster.put(b"k")
    assert told.wait(10)


def test_a_watch_ends_with_a_transaction_that_does_not_commit(cluster: Cluster) -> None:
    """1025."""
    tr = cluster.db.create_transaction()
    future = tr.watch(cluster.key(b"k"))
    tr.reset()

    cluster.assert_fails(1025, lambda: future)


def test_a_watch_can_be_cancelled(cluster: Cluster) -> None:
    """1101."""
    future = watch(cluster, b"k")
    future.cancel()

    cluster.assert_fails(1101, lambda: future)


def test_a_connection_has_a_limit_of_watches(cluster: Cluster) -> None:
    """1032 for each further one; one that ends makes room."""
    cluster.db.options.set_max_watches(2)
    try:
        first, second = watch(cluster, b"a"), watch(cluster, b"b")
        tr = cluster.db.create_transaction()
        cluster.assert_fails(1032, lambda: tr.watch(cluster.key(b"c")))
        first.cancel()
        third = watch(cluster, b"c")
        cluster.put(b"c")
        third.wait()
        second.cancel()
    finally:
        cluster.db.options.set_max_watches(10_000)


# -- life ----------------------------------------------------------------------------------------


def test_a_transaction_that_committed_is_used_up(cluster: Cluster) -> None:
    """2017 until it is reset."""
    tr = cluster.db.create_transaction()
    tr[cluster.key(b"k")] = b"v"
    tr.commit().wait()

    cluster.assert_fails(2017, lambda: tr.get(cluster.key(b"k")))
    tr.reset()
    assert tr[cluster.key(b"k")].value == b"v"


def test_a_cancelled_transaction_does_nothing(cluster: Cluster) -> None:
    """1025 until it is reset."""
    tr = cluster.db.create_transaction()
    tr.cancel()

    cluster.assert_fails(1025, lambda: tr.get(cluster.key(b"k")))
    tr.reset()
    assert not tr[cluster.key(b"k")].present()


def test_a_transaction_times_out(cluster: Cluster) -> None:
    """1031 for every call after its time."""
    tr = cluster.db.create_transaction()
    tr.options.set_timeout(20)
    cluster.pass_time(0.1)

    cluster.assert_fails(1031, lambda: tr.get(cluster.key(b"k")))
    cluster.assert_fails(1031, lambda: tr.on_error(1020))


def test_on_error_begins_anew_after_what_can_be_retried(cluster: Cluster) -> None:
    """Writes are forgotten, the version is a new one; other errors come back."""
    tr = cluster.db.create_transaction()
    tr[cluster.key(b"k")] = b"v"
    tr.on_error(1020).wait()

    assert not tr[cluster.key(b"k")].present()
    cluster.assert_fails(2101, lambda: tr.on_error(2101))
    cluster.assert_fails(1025, lambda: tr.get(cluster.key(b"k")))


def test_past_the_retry_limit_the_original_error_is_raised(cluster: Cluster) -> None:
    """1020 stays 1020."""
    tr = cluster.db.create_transaction()
    tr.options.set_retry_limit(1)
    tr.on_error(1020).wait()

    cluster.assert_fails(1020, lambda: tr.on_error(1020))


def test_a_transaction_that_nobody_holds_cancels_its_futures(cluster: Cluster) -> None:
    """1025: it must stay referenced until the answer is there."""
    cluster.assert_fails(1025, lambda: cluster.db.create_transaction().get_read_version())


def test_a_missing_key_is_a_future_without_value(cluster: Cluster) -> None:
    """`present()` tells; the future itself is always there. The database says None."""
    tr = cluster.db.create_transaction()

    assert tr[cluster.key(b"k")].present() is False
    assert tr[cluster.key(b"k")].value is None
    assert cluster.db[cluster.key(b"k")] is None


def test_a_database_has_shortcuts(cluster: Cluster) -> None:
    """Each a transaction of its own."""
    cluster.db[cluster.key(b"a")] = b"1"
    cluster.db[cluster.key(b"b")] = b"2"
    first, last = cluster.span()

    assert [row.value for row in cluster.db[first:last]] == [b"1", b"2"]
    del cluster.db[cluster.key(b"a")]
    assert cluster.names() == [b"b"]
    del cluster.db[first:last]
    assert cluster.names() == []
