"""What the tests of the servers share: servers of their own, and a client's hand on each kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from tests.servers import watcher
from tests.servers.binaries import Install
from tests.servers.cluster import Cluster
from tests.servers.kinds import Missing, install_of
from tests.servers.postgres import Postgres
from tests.servers.redis_node import RedisNode

if TYPE_CHECKING:
    from tests.servers.kinds import Kind

LOST = (
    psycopg.OperationalError,
    redis.RedisError,
    redis.exceptions.RedisClusterException,
    OSError,
)
"""What a client sees of a server that is gone."""


NEVER = Retry(NoBackoff(), 0)


def installed(kind: str) -> Install:
    """Its binaries; without them the test ends."""
    try:
        return install_of(kind)
    except Missing as missing:
        missing.end_test()


def made(kind: str, **options: Any) -> Kind:
    """One that keeps what it confirmed, also when it is killed; not started."""
    install = installed(kind)
    if kind.startswith("postgres"):
        return Postgres(install, **options)
    if kind == "redis":
        return RedisNode(install, appendfsync="always", **options)
    return Cluster(install, appendfsync="always", **options)


def folders(server: Kind) -> list[Path]:
    nodes = server.nodes if isinstance(server, Cluster) else [server]
    return [node.folder for node in nodes]


def gone(pids: list[int]) -> bool:
    return not any(map(watcher.alive, pids))


class Hand(Protocol):
    """One client with its connections."""

    def put(self, word: str) -> None: ...
    def get(self) -> str: ...
    def lost(self) -> bool:
        """Whether each connection that it held from the beginning has ended."""

    def close(self) -> None: ...


class PostgresHand:
    """Writes as the ordinary user, in a schema of its own."""

    def __init__(self, server: Postgres, schema: str) -> None:
        self._schema = schema
        self._connection = psycopg.connect(server.url, autocommit=True, connect_timeout=10)

    def put(self, word: str) -> None:
        schema: Any = self._schema
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {schema}.words (word text)")
        self._connection.execute(f"INSERT INTO {schema}.words VALUES (%s)", [word])

    def get(self) -> str:
        schema: Any = self._schema
        row = self._connection.execute(f"SELECT word FROM {schema}.words").fetchone()
        assert row is not None
        return str(row[0])

    def lost(self) -> bool:
        try:
            self._connection.execute("SELECT 1")
        except LOST:
            return True
        return False

    def close(self) -> None:
        self._connection.close()


class RedisHand:
    """Writes keys of several slots, so that every node of a cluster has some.

    Its client connects anew without a word, so it holds a bare connection to each node as well.
    """

    def __init__(self, client: Any, prefix: str, ports: list[int]) -> None:
        self._client = client
        self._keys = [f"{prefix}word{n}" for n in range(20)]
        bare: Any = redis.Connection  # its methods have no types
        self._held = [bare(host="127.0.0.1", port=port, retry=NEVER) for port in ports]
        for connection in self._held:
            connection.connect()

    def put(self, word: str) -> None:
        for key in self._keys:
            self._client.set(key, word)

    def get(self) -> str:
        words = {self._client.get(key) for key in self._keys}
        assert len(words) == 1
        return str(words.pop())

    def lost(self) -> bool:
        return all(map(self._has_ended, self._held))

    def _has_ended(self, connection: Any) -> bool:
        try:
            connection.send_command("PING", check_health=False)
            connection.read_response()
        except LOST:
            return True
        return False

    def close(self) -> None:
        self._client.close()
        for connection in self._held:
            connection.disconnect()


def hand(server: Kind, url: str) -> Hand:
    """One that uses this place of the server. It does not try again."""
    place = url.rpartition("=")[2]
    if isinstance(server, Postgres):
        return PostgresHand(server, place)
    nodes = server.nodes if isinstance(server, Cluster) else [server]
    options: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": server.port,
        "decode_responses": True,
        "retry": NEVER,
        "socket_timeout": 20,
    }
    client = RedisCluster if isinstance(server, Cluster) else redis.Redis
    return RedisHand(client(**options), place, [node.port for node in nodes])


def has_words(server: Kind, url: str) -> bool:
    """Whether anything is left at this place, asked past any client."""
    place = url.rpartition("=")[2]
    if isinstance(server, Postgres):
        with server.connect() as connection:
            query = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
            return connection.execute(query, [place]).fetchone() is not None
    nodes = server.masters() if isinstance(server, Cluster) else [server]
    return any(place.encode() in key for node in nodes for key in node.ask("KEYS", "*"))
