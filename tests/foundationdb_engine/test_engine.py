"""FoundationDB as it was measured, one property a test: on the engine, or on a cluster if named.

What needs an injected fault or a clock that is moved by hand is in `test_engine_clock.py` and
`test_engine_faults.py`, on the engine alone.
"""

from __future__ import annotations

import threading
from typing import Any

from tests.foundationdb_engine.cluster import Cluster

STAMP = bytes(10)
"""Where a versionstamp goes."""


def place(offset: int) -> bytes:
    return offset.to_bytes(4, "little")


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


# -- versionstamps -------------------------------------------------------------------------------


def test_a_stamp_is_the_commit_version_and_the_order_in_its_batch(cluster: Cluster) -> None:
    """Ten bytes, the first eight of them big-endian the version of the commit."""
    tr = cluster.db.create_transaction()
    tr.set_versionstamped_key(cluster.key(STAMP) + place(len(cluster.prefix)), b"v")
    stamp = tr.get_versionstamp()
    tr.commit().wait()

    assert len(stamp.value) == 10
    assert stamp.value[:8] == tr.get_committed_version().to_bytes(8, "big")
    assert cluster.names() == [stamp.value]


def test_a_stamp_goes_where_the_last_four_bytes_say(cluster: Cluster) -> None:
    """In a key and in a value; the four bytes themselves are not stored."""
    tr = cluster.db.create_transaction()
    key = cluster.key(b"a" + STAMP + b"z")
    tr.set_versionstamped_key(key + place(len(cluster.prefix) + 1), b"v")
    tr.set_versionstamped_value(cluster.key(b"value"), b"<" + STAMP + b">" + place(1))
    stamp = tr.get_versionstamp()
    tr.commit().wait()

    assert cluster.names() == [b"a" + stamp.value + b"z", b"value"]
    assert cluster.value(b"value") == b"<" + stamp.value + b">"


def test_a_stamp_that_does_not_fit_is_refused(cluster: Cluster) -> None:
    """2000: fewer than ten bytes are left at its place."""
    tr = cluster.db.create_transaction()
    tr.set_versionstamped_value(cluster.key(b"k"), STAMP + place(1))

    cluster.assert_fails(2000, tr.commit)


def test_commits_in_flight_together_get_distinct_stamps_in_the_order_of_issue(
    cluster: Cluster,
) -> None:
    """From one client; of 200, several may share a version."""
    transactions = [cluster.db.create_transaction() for _ in range(200)]
    for number, tr in enumerate(transactions):
        key = cluster.key(STAMP) + place(len(cluster.prefix))
        tr.set_versionstamped_key(key, number.to_bytes(2, "big"))
    for future in [tr.commit() for tr in transactions]:
        future.wait()

    tr = cluster.db.create_transaction()
    rows = tr.get_range(*cluster.span()).to_list()

    assert [int.from_bytes(row.value, "big") for row in rows] == list(range(200))


def test_an_own_key_that_waits_for_its_stamp_cannot_be_read(cluster: Cluster) -> None:
    """1036, for the range it may come to stand in."""
    tr = cluster.db.create_transaction()
    tr.set_versionstamped_key(cluster.key(STAMP) + place(len(cluster.prefix)), b"v")

    cluster.assert_fails(1036, lambda: tr._get_range(*selectors(cluster), 10, 0, 1, False))
    cluster.assert_fails(1036, lambda: tr.get(cluster.key(b"\xfe" * 10)))


def test_an_own_value_that_waits_for_its_stamp_cannot_be_read(cluster: Cluster) -> None:
    """1036, also after another write to the key; a clear makes it readable."""
    tr = cluster.db.create_transaction()
    tr.set_versionstamped_value(cluster.key(b"k"), STAMP + place(0))

    cluster.assert_fails(1036, lambda: tr.get(cluster.key(b"k")))
    tr[cluster.key(b"k")] = b"plain"
    cluster.assert_fails(1036, lambda: tr.get(cluster.key(b"k")))
    del tr[cluster.key(b"k")]
    assert not tr[cluster.key(b"k")].present()


def test_what_is_read_says_that_it_is_bytes_even_where_nothing_is(cluster: Cluster) -> None:
    """So only its type tells it from bytes, and only `present` or `value` whether there is any."""
    tr = cluster.db.create_transaction()
    found: Any = tr[cluster.key(b"none")].wait()

    assert found.value is None
    assert type(found) is not bytes
    assert isinstance(found, bytes)


def test_a_transaction_that_wrote_nothing_has_no_stamp(cluster: Cluster) -> None:
    """2021; its commit version is -1."""
    tr = cluster.db.create_transaction()
    stamp = tr.get_versionstamp()
    tr.commit().wait()

    cluster.assert_fails(2021, lambda: stamp)
    assert tr.get_committed_version() == -1


# -- atomic operations ---------------------------------------------------------------------------


def test_atomic_operations_compute_on_the_value_that_is_there(cluster: Cluster) -> None:
    """Little-endian add and max, bytewise byte_max and byte_min; on a missing key too."""
    tr = cluster.db.create_transaction()
    tr[cluster.key(b"sum")] = number(40)
    tr[cluster.key(b"top")] = number(300)
    tr[cluster.key(b"text")] = b"b"
    tr.commit().wait()

    tr = cluster.db.create_transaction()
    tr.add(cluster.key(b"sum"), number(2))
    tr.add(cluster.key(b"new"), number(2**64 - 1))
    tr.max(cluster.key(b"top"), number(255))
    tr.byte_max(cluster.key(b"text"), b"aa")
    tr.byte_min(cluster.key(b"none"), b"x")
    tr.commit().wait()

    assert cluster.value(b"sum") == number(42)
    assert cluster.value(b"new") == number(2**64 - 1)
    assert cluster.value(b"top") == number(300)
    assert cluster.value(b"text") == b"b"
    assert cluster.value(b"none") == b"x"


def test_compare_and_clear_clears_an_equal_value_alone(cluster: Cluster) -> None:
    """What differs stays."""
    cluster.put(b"same", b"other", value=b"1")
    tr = cluster.db.create_transaction()
    tr.compare_and_clear(cluster.key(b"same"), b"1")
    tr.compare_and_clear(cluster.key(b"other"), b"2")
    tr.commit().wait()

    assert cluster.names() == [b"other"]


def test_overlapping_adds_do_not_conflict(cluster: Cluster) -> None:
    """Both are counted."""
    one, two = cluster.db.create_transaction(), cluster.db.create_transaction()
    for tr in (one, two):
        tr.get_read_version().wait()
        tr.add(cluster.key(b"n"), number(1))
    one.commit().wait()
    two.commit().wait()

    assert cluster.value(b"n") == number(2)


# -- conflicts -----------------------------------------------------------------------------------


def selectors(cluster: Cluster) -> tuple[Any, Any]:
    first, last = cluster.span()
    pick = cluster.binding.KeySelector.first_greater_or_equal
    return pick(first), pick(last)


def writer(cluster: Cluster) -> Any:
    """A transaction that has a read version and something to write."""
    tr = cluster.db.create_transaction()
    tr.get_read_version().wait()
    tr[cluster.key(b"\xf0 mine")] = b"1"
    return tr


def test_a_value_that_changed_since_it_was_read_is_a_conflict(cluster: Cluster) -> None:
    """1020, also if it was missing, and if the same was written again."""
    for before in (b"there", b"missing"):
        if before == b"there":
            cluster.put(before)
        tr = writer(cluster)
        tr[cluster.key(before)].wait()
        cluster.put(before)

        cluster.assert_fails(1020, tr.commit)


def test_a_snapshot_read_does_not_conflict(cluster: Cluster) -> None:
    """Of a key, of a range, of a selector."""
    cluster.put(b"a", b"b")
    tr = writer(cluster)
    tr.snapshot[cluster.key(b"a")].wait()
    tr.snapshot.get_range(*cluster.span()).to_list()
    tr.snapshot.get_key(selectors(cluster)[0]).wait()
    cluster.put(b"a", b"aa", value=b"new")

    tr.commit().wait()

    assert b"\xf0 mine" in cluster.names()


def test_a_range_read_conflicts_with_a_change_inside(cluster: Cluster) -> None:
    """1020."""
    cluster.put(b"a", b"b", b"c")
    tr = writer(cluster)
    cluster.names(tr)
    cluster.put(b"b", value=b"new")

    cluster.assert_fails(1020, tr.commit)


def test_a_range_read_conflicts_with_an_insert_inside(cluster: Cluster) -> None:
    """1020: no phantoms."""
    cluster.put(b"a", b"c")
    tr = writer(cluster)
    cluster.names(tr)
    cluster.put(b"b")

    cluster.assert_fails(1020, tr.commit)


def test_a_range_read_conflicts_with_a_cleared_range(cluster: Cluster) -> None:
    """1020, even where nothing was to be cleared."""
    tr = writer(cluster)
    tr[cluster.key(b"k")].wait()
    other = cluster.db.create_transaction()
    other.clear_range(cluster.key(b"a"), cluster.key(b"z"))
    other.commit().wait()

    cluster.assert_fails(1020, tr.commit)


def test_with_a_limit_only_the_part_that_was_read_conflicts(cluster: Cluster) -> None:
    """A change behind the last row is none of its business; one before it is."""
    cluster.put(b"a", b"b", b"c", b"d")
    behind, before = writer(cluster), writer(cluster)
    for tr in (behind, before):
        assert cluster.names(tr, limit=2) == [b"a", b"b"]
    cluster.put(b"bb", b"c")
    behind.commit().wait()
    cluster.put(b"aa")

    cluster.assert_fails(1020, before.commit)


def test_in_reverse_with_a_limit_only_the_part_that_was_read_conflicts(cluster: Cluster) -> None:
    """The same from the other side."""
    cluster.put(b"a", b"b", b"c")
    tr = writer(cluster)
    assert cluster.names(tr, limit=2, reverse=True) == [b"\xf0 mine", b"c"]
    cluster.put(b"b", b"bb")

    tr.commit().wait()

    tr = writer(cluster)
    cluster.names(tr, limit=2, reverse=True)
    cluster.put(b"\xf0 more")
    cluster.assert_fails(1020, tr.commit)


def test_blind_writes_to_one_key_do_not_conflict(cluster: Cluster) -> None:
    """The last one wins."""
    one, two = writer(cluster), writer(cluster)
    one.commit().wait()
    two.commit().wait()

    assert cluster.value(b"\xf0 mine") == b"1"


def test_what_the_own_writes_decide_does_not_conflict(cluster: Cluster) -> None:
    """A key that was set or cleared before it was read."""
    cluster.put(b"a", b"b")
    tr = writer(cluster)
    tr[cluster.key(b"a")] = b"own"
    tr.clear_range(cluster.key(b"b"), cluster.key(b"c"))
    assert tr[cluster.key(b"a")].value == b"own"
    assert not tr[cluster.key(b"b")].present()
    cluster.put(b"a", b"b", value=b"other")

    tr.commit().wait()

    assert cluster.value(b"a") == b"own"


def test_an_atomic_operation_that_is_read_back_conflicts(cluster: Cluster) -> None:
    """Its result depends on the value below."""
    tr = writer(cluster)
    tr.add(cluster.key(b"n"), number(1))
    assert tr[cluster.key(b"n")].value == number(1)
    cluster.put(b"n", value=number(5))

    cluster.assert_fails(1020, tr.commit)


def test_conflicts_can_be_declared(cluster: Cluster) -> None:
    """A read that was none, and a write that was none."""
    reader, announcer = writer(cluster), cluster.db.create_transaction()
    reader.add_read_conflict_key(cluster.key(b"k"))
    announcer.add_write_conflict_key(cluster.key(b"k"))
    announcer.commit().wait()

    cluster.assert_fails(1020, reader.commit)


def test_a_commit_that_wrote_nothing_does_nothing(cluster: Cluster) -> None:
    """It cannot be in conflict."""
    cluster.put(b"a")
    tr = cluster.db.create_transaction()
    tr[cluster.key(b"a")].wait()
    cluster.put(b"a", value=b"new")

    tr.commit().wait()

    assert tr.get_committed_version() == -1


def test_counting_up_in_20_threads_counts_everything(cluster: Cluster) -> None:
    """Read, add one, write, retried on conflicts: 20 threads, 20 times each, make 400."""
    failures: list[BaseException] = []

    def count_up() -> None:
        try:
            for _ in range(20):
                add_one(cluster)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=count_up) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert failures == []
    assert cluster.value(b"n") == number(400)


def add_one(cluster: Cluster) -> None:
    tr = cluster.db.create_transaction()
    while True:
        try:
            found = tr[cluster.key(b"n")].value or number(0)
            tr[cluster.key(b"n")] = number(int.from_bytes(found, "little") + 1)
            tr.commit().wait()
        except cluster.binding.FDBError as error:
            tr.on_error(error).wait()
        else:
            return
