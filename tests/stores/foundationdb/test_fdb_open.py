"""What is needed to open a FoundationDB store, and what is said where it is missing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.foundationdb_engine import Engine

from holdfast.core.errors import ConfigError, MissingExtra, SchemaTooNew, StoreUnavailable
from holdfast.core.finding import Level
from holdfast.operate import examine
from holdfast.stores import open_store
from holdfast.stores.foundationdb.layout import FORMAT, Keys, Space
from holdfast.stores.foundationdb.options import CLUSTER_FILE, Options, parse
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.builders import job

WITHOUT_LIBRARY = """
import ctypes

def nowhere(*_, **__):
    raise OSError("no such library")

ctypes.CDLL = nowhere

from holdfast.__main__ import main
main()
"""
"""The command line on a machine that has the binding and not the client library."""
BOUND_S = 60


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user reads what to install."""
    monkeypatch.setitem(sys.modules, "fdb", None)

    with pytest.raises(MissingExtra) as told:
        open_store("fdb://")

    assert "holdfast[foundationdb]" in str(told.value)
    assert "fdb://" in str(told.value)


@pytest.mark.parametrize("command", [("doctor", "fdb://"), ("jobs", "--store", "fdb://")])
def test_without_the_library_the_client_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    """The binding comes with pip, the client library does not: that is said, at once."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY, *command],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        cwd=tmp_path,
        check=False,
    )

    assert done.returncode == 1
    assert "install FoundationDB's client" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


async def test_a_cluster_that_does_not_answer_is_told_in_time() -> None:
    """Within `retry_s` and one `timeout_s`, with words about what to look at."""
    engine = Engine()
    engine.stop()
    options = Options(prefix="c", timeout_s=0.1, retry_s=0.3)
    store = FoundationStore(options, None, engine.database())
    begun = time.monotonic()

    with pytest.raises(StoreUnavailable, match="is it up, is the file right"):
        await store.open()

    assert time.monotonic() - begun < BOUND_S


async def test_what_failed_to_open_opens_later() -> None:
    """The same store, once the cluster is there."""
    engine = Engine()
    engine.stop()
    options = Options(prefix="c", timeout_s=0.1, retry_s=0.1)
    store = FoundationStore(options, None, engine.database())
    with pytest.raises(StoreUnavailable):
        await store.open()
    engine.start()

    await store.open()

    assert (await store.enqueue([job("x")]))[0].created
    await store.close()


async def test_a_newer_format_is_not_touched() -> None:
    """A program that is older than the keys refuses to work on them."""
    engine = Engine()
    key = Keys(b"c\0").all(Space.META)
    engine.database()[key] = bytes([FORMAT + 1]) + bytes(8)
    store = FoundationStore(Options(prefix="c"), None, engine.database())

    with pytest.raises(SchemaTooNew):
        await store.open()

    assert engine.keys == 1


async def test_two_prefixes_of_a_cluster_are_two_stores() -> None:
    """Neither sees a job of the other."""
    engine = Engine()
    ours = FoundationStore(Options(prefix="a"), None, engine.database())
    theirs = FoundationStore(Options(prefix="ab"), None, engine.database())
    for store in (ours, theirs):
        await store.open()
    await ours.enqueue([job("x")])

    assert (await theirs.enqueue([job("x")]))[0].created
    assert len(await ours.count(None)) == len(await theirs.count(None)) == 1
    for store in (ours, theirs):
        await store.close()


async def test_the_doctor_says_what_it_cannot_know() -> None:
    """The engine tells nothing of its health; a cluster does."""
    store = FoundationStore(Options(prefix="c"), None, Engine().database())

    found = {finding.what: finding for finding in await examine(store)}

    assert found["cluster"].level is Level.OK
    assert found["health"].level is Level.WARNING
    assert Level.BAD not in {finding.level for finding in found.values()}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("fdb://etc/fdb.cluster", "four"),
        ("fdb://?prefiks=x", "prefix"),
        ("fdb://?prefix=", "1 to 64"),
        ("fdb://?timeout_s=0", "above 0"),
        ("fdb://?events=yes", "on or off"),
    ],
)
def test_a_wrong_url_is_refused_by_name(url: str, words: str) -> None:
    """Each error says which part is wrong, and what is right."""
    with pytest.raises(ConfigError, match=words):
        parse(url)


def test_the_cluster_file_is_named_by_the_url_or_by_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The URL wins; without both it is the client library's own."""
    monkeypatch.delenv(CLUSTER_FILE, raising=False)
    assert parse("fdb://").cluster_file is None
    monkeypatch.setenv(CLUSTER_FILE, "/run/fdb.cluster")

    assert parse("fdb://").cluster_file == "/run/fdb.cluster"
    assert parse("fdb:////etc/fdb.cluster").cluster_file == "/etc/fdb.cluster"
    assert parse("fdb:///fdb.cluster").cluster_file == "fdb.cluster"
    assert parse("fdb://?cluster_file=/x").cluster_file == "/x"


def test_the_name_of_a_place_is_a_url_of_it() -> None:
    """Who reads an error can open what it names."""
    options = parse("fdb:////etc/fdb.cluster?prefix=jobs")

    assert parse(options.name) == options
