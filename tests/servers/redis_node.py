"""A private Redis: one node, alone or of a cluster."""

from __future__ import annotations

import itertools
import re
from typing import Any, ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.servers.binaries import Install
from tests.servers.process import Server, give, wait_for

UNLINKS_EACH = 1000
TYPES = ("normal", "pubsub")
"""Of clients, as Redis calls them."""


class RedisNode(Server):
    """One redis-server."""

    kind: ClassVar = "redis"

    def __init__(
        self,
        install: Install,
        *,
        appendfsync: str = "everysec",
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__(install)
        self._settings = {
            "bind": "127.0.0.1",
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes",
            "appendfsync": appendfsync,
            "maxmemory-policy": "noeviction",
            **(settings or {}),
        }
        self._numbers = itertools.count(1)
        self._prefixes: list[str] = []
        self._kept: redis.Redis | None = None

    @property
    def url(self) -> str:
        """Of its database, without a prefix."""
        return f"redis://127.0.0.1:{self.port}/0"

    def fresh(self, name: str = "jobs") -> str:
        """The URL of a prefix that no key has yet, until `clear`."""
        self._prefixes.append(f"hf{next(self._numbers)}:")
        return f"{self.url}?prefix={self._prefixes[-1]}"

    def lend(self, name: str = "jobs") -> str:
        """The same: a prefix costs nothing to make."""
        return self.fresh(name)

    def clear(self) -> None:
        """Deletes all keys of what `fresh` gave."""
        self.ensure()
        self.delete(self._prefixes)
        self._prefixes.clear()

    def delete(self, prefixes: list[str]) -> None:
        """All keys of this node that contain a prefix; one pass over the keys for all of them.

        Contain, not begin with: a hash tag may stand before it.
        """
        wanted = {prefix.encode() for prefix in prefixes}
        cursor = 0
        while wanted:
            cursor, keys = self.ask("SCAN", cursor, "COUNT", UNLINKS_EACH)
            with self._control().pipeline(transaction=False) as pipe:
                for key in keys:
                    if any(prefix in key for prefix in wanted):
                        pipe.execute_command("UNLINK", key)  # one each: slots differ
                pipe.execute()
            if int(cursor) == 0:
                return

    def connect(self, timeout_s: float = 10.0) -> redis.Redis:
        """For control; does not try again."""
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )

    def ask(self, *words: Any) -> Any:
        """One command."""
        return self._control().execute_command(*words)

    def _control(self) -> Any:
        """One that stays: a test of a cluster asks a dozen times.

        It notices by itself that its connection has ended, and makes another.
        """
        if self._kept is None:
            self._kept = self.connect()
        return self._kept

    def _end(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        super()._end()

    def cut(self) -> None:
        with self.connect() as client:
            before = _clients(client)
            for type in TYPES:
                client.client_kill_filter(_type=type, skipme=True)
            own = {int(client.client_id())}
            # Not until there are none: they may be back already.
            wait_for(lambda: _clients(client) & before <= own, "all clients are cut")

    def _prepare(self) -> None:
        data = self.folder / "data"
        data.mkdir()
        give(data)

    def _command(self) -> list[str]:
        words = {**self._settings, "port": str(self.port), "dir": str(self.folder / "data")}
        config = self.folder / "redis.conf"
        config.write_text("".join(f"{name} {value}\n" for name, value in words.items()))
        return [str(self.programs / "redis-server"), str(config)]

    def _ready(self) -> bool:
        """Serves, has loaded its data, and is not another's on our port."""
        try:
            with self.connect(timeout_s=1.0) as client:
                info: Any = client.info()
        except redis.RedisError:
            return False
        return int(info["process_id"]) == self.pid and int(info["loading"]) == 0


def _clients(client: Any) -> set[int]:
    """The ids of all clients but replicas."""
    found = b"".join(client.execute_command("CLIENT", "LIST", "TYPE", type) for type in TYPES)
    return {int(id) for id in re.findall(rb"^id=(\d+)", found, re.MULTILINE)}
