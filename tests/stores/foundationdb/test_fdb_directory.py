"""An installation is a directory of the cluster, in the layout that FoundationDB's tools know."""

from __future__ import annotations

import asyncio
import os
import struct
from itertools import permutations
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, Faults
from tests.servers.foundationdb import Absent, binding, file_named

from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError, StoreError
from holdfast.stores.foundationdb.clock import Time
from holdfast.stores.foundationdb.directory import Directories, pack
from holdfast.stores.foundationdb.doctor import examine
from holdfast.stores.foundationdb.options import Options, parse
from holdfast.stores.foundationdb.runner import Runner
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.builders import job

ROOT = b"\xfe\x01\xfe\x00"
MANY = 200


async def _opened(database: Any, *path: str) -> bytes:
    runner = Runner(database, Options(), Time(SystemClock(), 0))
    return await runner.bare(lambda tr: Directories(tr, "here").create_or_open(path))


async def test_a_new_directory_has_the_keys_that_the_official_layer_writes() -> None:
    """Key by key, so that every tool lists it, and no other allocates its prefix."""
    database = Engine().database()

    prefix = await _opened(database, "acme", "jobs")

    parent = database[ROOT + b"\x14\x02acme\x00"]
    assert parent is not None
    assert {row.key: row.value for row in database.get_range(b"", b"\xff")} == {
        ROOT + b"\x01version\x00": struct.pack("<III", 1, 0, 0),
        ROOT + b"\x14\x02acme\x00": parent,
        b"\xfe\x01" + parent + b"\x00\x01layer\x00": b"",
        b"\xfe\x01" + parent + b"\x00\x14\x02jobs\x00": prefix,
        b"\xfe\x01" + prefix + b"\x00\x01layer\x00": b"holdfast",
        ROOT + b"\x01hca\x00\x14\x14": struct.pack("<q", 2),
        ROOT + b"\x01hca\x00\x15\x01" + parent: b"",
        ROOT + b"\x01hca\x00\x15\x01" + prefix: b"",
    }


async def test_a_directory_is_found_again() -> None:
    """By its path, whoever asks."""
    database = Engine().database()

    first = await _opened(database, "holdfast")

    assert await _opened(database, "holdfast") == first
    assert await _opened(database, "holdfast", "inner") != first


async def test_no_directory_lies_within_another() -> None:
    """However many there are: the allocator's windows move on."""
    database = Engine().database()

    prefixes = [await _opened(database, f"d{number}") for number in range(MANY)]

    assert not any(one.startswith(other) for one, other in permutations(prefixes, 2))
    assert max(map(len, prefixes)) == 3


@pytest.mark.parametrize("seed", range(20))
async def test_those_that_open_at_once_agree(seed: int) -> None:
    """Whatever the cluster does to them: same path, same place; other path, other place."""
    engine = Engine(faults=Faults(seed, delay=0.7, conflict=0.1, unknown=0.2, timeout=0.03))
    paths = [("a",), ("a", "b"), ("a", "c"), ("d",)] * 3

    found = await asyncio.gather(*(_opened(engine.database(), *path) for path in paths))

    places = dict(zip(paths, found, strict=True))
    assert [places[path] for path in paths] == found
    assert len(set(found)) == 4


async def test_a_directory_of_somebody_else_is_not_ours() -> None:
    """It says whose it is."""
    database = Engine().database()
    prefix = await _opened(database, "theirs")
    database[b"\xfe" + pack(prefix) + pack(b"layer")] = b"app"

    with pytest.raises(StoreError, match="'app', not ours"):
        await _opened(database, "theirs")


@pytest.mark.parametrize(("version", "readable"), [((2, 0, 0), False), ((1, 1, 0), True)])
async def test_a_newer_layout_of_directories_is_not_written(
    version: tuple[int, int, int], readable: bool
) -> None:
    """One of a newer minor version may be read."""
    database = Engine().database()
    known = await _opened(database, "known")
    database[ROOT + pack(b"version")] = struct.pack("<III", *version)

    with pytest.raises(StoreError, match="newer than is known"):
        await _opened(database, "new")

    if readable:
        assert await _opened(database, "known") == known
    else:
        with pytest.raises(StoreError, match="newer than is known"):
            await _opened(database, "known")


async def test_a_prefix_with_keys_of_others_is_refused() -> None:
    """Somebody who knows no directories wrote there."""
    database = Engine().database()
    for number in range(64):
        database[pack(number) + b"theirs"] = b"x"

    with pytest.raises(StoreError, match="in use already"):
        await _opened(database, "holdfast")


async def test_a_directory_in_a_partition_lies_behind_it() -> None:
    """A partition has nodes of its own behind its prefix."""
    database = Engine().database()
    prefix = await _opened(database, "part")
    database[b"\xfe" + pack(prefix) + pack(b"layer")] = b"partition"

    inner = await _opened(database, "part", "jobs")

    assert inner.startswith(prefix)
    assert len(inner) > len(prefix)
    assert await _opened(database, "part", "jobs") == inner
    with pytest.raises(StoreError, match="'partition', not ours"):
        await _opened(database, "part")


async def test_a_store_lives_in_its_directory() -> None:
    """Two directories are two installations; the doctor says where the keys are."""
    engine = Engine()
    stores = [
        FoundationStore(Options(directory=name), None, engine.database())
        for name in ("holdfast", "acme/jobs", "holdfast")
    ]
    for store in stores:
        await store.open()
    await stores[0].enqueue([job("x")])

    assert (await stores[1].enqueue([job("x")]))[0].created
    assert not (await stores[2].enqueue([job("x")]))[0].created
    words = {finding.what: finding.words for finding in await examine(stores[1])}
    assert "acme/jobs" in words["directory"]
    for store in stores:
        await store.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("fdb://?directory=a&prefix=b", "not both"),
        ("fdb://?directory=/a", "between slashes"),
        ("fdb://?directory=", "between slashes"),
    ],
)
def test_a_wrong_directory_is_refused(url: str, words: str) -> None:
    """With the name of the option."""
    with pytest.raises(ConfigError, match=words):
        parse(url)


def test_the_directory_is_told_by_the_url() -> None:
    """Unless it says another, it is holdfast."""
    assert parse("fdb://").path == ("holdfast",)
    assert parse("fdb://?directory=acme/jobs").path == ("acme", "jobs")
    options = parse("fdb:////etc/fdb.cluster?directory=acme/jobs")
    assert parse(options.name) == options


async def test_the_official_layer_and_ours_open_the_same_directories() -> None:
    """Over a real cluster, where one is named: what one makes the other finds and lists."""
    try:
        file = file_named()
    except Absent as absent:
        pytest.skip(str(absent))
    fdb = binding()
    database = fdb.open(file)
    top = f"holdfast test {os.urandom(8).hex()}"
    try:
        ours = await _opened(database, top, "ours")
        theirs = fdb.directory.create_or_open(database, (top, "theirs"), b"holdfast").key()

        assert fdb.directory.open(database, (top, "ours"), b"holdfast").key() == ours
        assert await _opened(database, top, "theirs") == theirs
        assert sorted(fdb.directory.list(database, (top,))) == ["ours", "theirs"]
    finally:
        fdb.directory.remove_if_exists(database, (top,))
