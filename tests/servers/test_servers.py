"""The private servers do what their names say: every fault is real, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers import process, watcher
from tests.servers.cluster import Cluster
from tests.servers.hands import LOST, folders, gone, hand, has_words, installed, made
from tests.servers.kinds import KINDS, Servers
from tests.servers.postgres import Postgres
from tests.servers.process import PORTS, ServerFailed, free_port
from tests.servers.redis_node import RedisNode

if TYPE_CHECKING:
    from tests.servers.kinds import Kind

PATIENCE_S = 30.0
SINGLE = [kind for kind in KINDS if kind != "cluster"]


@pytest.fixture(params=KINDS, scope="module")
def started(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """One of each kind for all tests of this module, each of which leaves it as it likes."""
    with made(request.param) as server:
        yield server


@pytest.fixture
def server(started: Kind) -> Kind:
    """Serving."""
    started.ensure()
    return started


def _owner(pid: int) -> int | None:
    """Who runs a process; None when it has ended meanwhile, as short-lived backends do."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return None


def test_a_server_is_private(server: Kind) -> None:
    """On the loopback, on a port nobody is given by chance, and never as root."""
    nodes = server.nodes if isinstance(server, Cluster) else [server]
    assert all(node.port in PORTS for node in nodes)
    assert PORTS.stop + process.BUS < 32768
    owners = [owner for pid in server.pids if (owner := _owner(pid)) is not None]
    assert owners
    assert 0 not in owners
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in folders(server))
    assert "127.0.0.1" in server.url


def test_a_killed_server_leaves_no_process_and_comes_back_with_its_data(server: Kind) -> None:
    """kill -9 reaches the backends too; the port and what was confirmed stay."""
    url, port = server.fresh(), server.port
    first = hand(server, url)
    first.put("kept")
    before = server.pids

    server.kill()

    assert gone(before)
    assert not server.running
    assert server.pids == []
    with pytest.raises(LOST):
        first.get()
    first.close()

    server.start()

    assert server.port == port
    assert not set(server.pids) & set(before)
    second = hand(server, url)
    assert second.get() == "kept"
    second.close()


def test_a_stopped_server_comes_back_with_its_data(server: Kind) -> None:
    """`stop` ends it in order, also when it is frozen."""
    url = server.fresh()
    first = hand(server, url)
    first.put("kept")
    first.close()
    before = server.pids
    server.freeze()

    server.stop()

    assert gone(before)
    server.start()
    second = hand(server, url)
    assert second.get() == "kept"
    second.close()


def test_a_frozen_server_answers_when_it_is_thawed(server: Kind) -> None:
    """Its connections stay: a client waits, and sees no error."""
    client = hand(server, server.fresh())
    client.put("kept")

    server.freeze()

    stats = [watcher.stat(pid) for pid in server.pids]
    assert len(stats) > 0
    assert {stat.state for stat in stats if stat is not None} == {"T"}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.get)
        try:
            with pytest.raises(TimeoutError):
                answer.result(0.3)
        finally:
            server.thaw()
        assert answer.result(PATIENCE_S) == "kept"
    client.close()


def test_a_cut_ends_each_connection_and_the_server_goes_on(server: Kind) -> None:
    """An open client sees an error, new ones come in meanwhile and find all as it was."""
    url = server.fresh()
    first = hand(server, url)
    first.put("kept")
    assert not first.lost()
    before = server.pids[0]
    enough = threading.Event()

    def come_and_go() -> None:
        while not enough.is_set():
            with contextlib.suppress(*LOST), contextlib.closing(hand(server, url)) as other:
                other.get()

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(come_and_go)
        try:
            server.cut()
        finally:
            enough.set()
        coming.result(PATIENCE_S)

    assert first.lost()
    first.close()
    assert server.pids[0] == before
    second = hand(server, url)
    assert second.get() == "kept"
    second.close()


def test_each_place_is_new_and_clearing_empties_them_all(server: Kind) -> None:
    """Two places never meet; after `clear` nothing is left of them."""
    urls = [server.fresh("jobs"), server.fresh("jobs")]
    assert len(set(urls)) == 2
    for url in urls:
        assert not has_words(server, url)
        client = hand(server, url)
        client.put(url)
        client.close()
    for url in urls:
        client = hand(server, url)
        assert client.get() == url
        client.close()

    server.clear()

    assert not any(has_words(server, url) for url in urls)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("postgres")])
def test_clearing_does_not_wait_for_a_forgotten_transaction(kind: str, servers: Servers) -> None:
    """Who left one open loses it: the next test must not hang."""
    installed(kind)
    server = servers.get(kind)
    assert isinstance(server, Postgres)
    url = server.fresh()
    client = hand(server, url)
    client.put("kept")
    open_one: Any = client
    open_one._connection.execute("BEGIN")
    assert client.get() == "kept"

    server.clear()

    assert not has_words(server, url)
    client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_removed_server_leaves_nothing(kind: str) -> None:
    """No process, no folder and no shared memory, even when it was killed before."""
    server = made(kind)
    server.start()
    pids, places = server.pids, folders(server)
    memory = [
        lock.read_text().splitlines()[6].split()[1]
        for place in places
        for lock in place.glob("*/postmaster.pid")
    ]
    assert len(memory) == isinstance(server, Postgres)
    server.kill()

    server.remove()

    assert gone(pids)
    assert not any(place.exists() for place in places)
    segments = [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()]
    assert not set(memory) & set(segments)


@pytest.mark.parametrize("kind", SINGLE)
def test_a_server_that_cannot_start_says_why(kind: str) -> None:
    """The error holds the tail of its log, and nothing is left."""
    server = made(kind, settings={"no-such-setting": "1"})

    with pytest.raises(ServerFailed, match="no-such-setting"):
        server.start()

    assert not server.running
    with pytest.raises(ServerFailed, match="never started"):
        folders(server)


@pytest.mark.parametrize("kind", SINGLE)
def test_binaries_in_a_closed_home_run_all_the_same(kind: str, tmp_path: Path) -> None:
    """Root may have them there, and the server runs as somebody else."""
    install = installed(kind)
    if not install.origin.startswith("wheel") and kind != "redis":
        pytest.skip(f"{kind}: the system's are where everybody can run them")
    for part in install.parts:
        target = tmp_path / part.relative_to(install.base)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy: Any = shutil.copytree if part.is_dir() else shutil.copy2
        copy(part, target)
    tmp_path.chmod(0o700)
    closed = replace(
        install,
        folder=tmp_path / install.folder.relative_to(install.base),
        base=tmp_path,
        parts=tuple(tmp_path / part.relative_to(install.base) for part in install.parts),
    )
    kind_of = Postgres if kind.startswith("postgres") else RedisNode

    with kind_of(closed) as server:
        assert server.running
        assert server.programs.is_relative_to(server.folder if os.geteuid() == 0 else tmp_path)


@pytest.mark.parametrize("kind", SINGLE)
def test_a_port_that_was_taken_meanwhile_is_no_failure(
    kind: str, started_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may take it between the look and the start."""
    ports = iter([started_port, free_port()])
    monkeypatch.setattr(process, "free_port", lambda *_: next(ports))

    with made(kind) as server:
        assert server.port != started_port
        assert server.running


@pytest.fixture
def started_port() -> Iterator[int]:
    """One that somebody listens on."""
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        yield taken.getsockname()[1]


def test_a_cluster_without_one_of_its_masters_fails_until_it_is_back() -> None:
    """Full coverage is required: the others refuse too."""
    cluster = made("cluster")
    assert isinstance(cluster, Cluster)
    with cluster:
        url = cluster.fresh()
        client = hand(cluster, url)
        client.put("kept")
        client.close()

        cluster.kill(1)
        others = [cluster.nodes[0], cluster.nodes[2]]
        assert all(
            watcher.until(lambda: node.state()["cluster_state"] == "fail", PATIENCE_S)  # noqa: B023
            for node in others
        )
        cluster.start(1)
        cluster.wait_ok()

        client = hand(cluster, url)
        assert client.get() == "kept"
        client.close()


def test_a_replica_takes_the_place_of_its_master() -> None:
    """And the old master comes back as a replica."""
    cluster = made("cluster", replicas=True)
    assert isinstance(cluster, Cluster)
    with cluster:
        url = cluster.fresh()
        client = hand(cluster, url)
        client.put("kept")
        client.close()
        assert cluster.masters() == cluster.nodes[:3]
        cluster.settle()

        cluster.kill(0)
        heir = cluster.nodes[3]
        assert watcher.until(lambda: heir in cluster.masters(), PATIENCE_S)
        cluster.start(0)
        assert watcher.until(cluster.nodes[0].follows, PATIENCE_S)
        cluster.wait_ok()

        assert set(cluster.masters()) == {heir, *cluster.nodes[1:3]}
        client = hand(cluster, url)
        assert client.get() == "kept"
        client.close()
