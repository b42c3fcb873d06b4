"""A private Redis Cluster: three masters, with a replica each if wanted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any, ClassVar, Self

from tests.servers.binaries import Install
from tests.servers.process import BUS, Server, ServerFailed, wait_for
from tests.servers.redis_node import RedisNode

SLOTS = 16_384
MASTERS = 3
FORM_S = 60.0
_SLAVE = re.compile(r"slave\d+")


class ClusterNode(RedisNode):
    """A node, with a bus port beside its own."""

    kind: ClassVar = "cluster"
    offsets: ClassVar = (BUS,)

    def state(self) -> dict[str, str]:
        """What CLUSTER INFO says."""
        lines = _text(self.ask("CLUSTER", "INFO")).split()
        return dict(line.split(":", 1) for line in lines)

    def follows(self) -> bool:
        """Whether it is a replica that has its master's data."""
        return bool(self.ask("INFO", "replication").get("master_link_status") == "up")

    def caught_up(self) -> bool:
        """Whether each of its replicas has confirmed all of its writes."""
        info = self.ask("INFO", "replication")
        offsets = [value["offset"] for name, value in info.items() if _SLAVE.fullmatch(name)]
        return all(int(offset) >= int(info["master_repl_offset"]) for offset in offsets)

    def id(self) -> str:
        return _text(self.ask("CLUSTER", "MYID"))


class Cluster:
    """Nodes that start and end together; each may also be hurt alone, by its place.

    The first three are the masters in the beginning; the replica of node n is node n + 3.
    """

    kind: ClassVar = "cluster"

    def __init__(
        self,
        install: Install,
        *,
        replicas: bool = False,
        node_timeout_ms: int = 2000,
        appendfsync: str = "everysec",
        settings: dict[str, str] | None = None,
    ) -> None:
        words = {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": str(node_timeout_ms),
            "cluster-require-full-coverage": "yes",
            "cluster-announce-ip": "127.0.0.1",
            "repl-diskless-sync": "yes",
            "repl-diskless-sync-delay": "0",
            **(settings or {}),
        }
        count = MASTERS * 2 if replicas else MASTERS
        self.nodes = [
            ClusterNode(install, appendfsync=appendfsync, settings=words) for _ in range(count)
        ]
        self._formed = False
        self._numbers = itertools.count(1)
        self._prefixes: list[str] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def port(self) -> int:
        """Of the first node."""
        return self.nodes[0].port

    @property
    def url(self) -> str:
        """By the first node, without a prefix."""
        return f"redis+cluster://127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        """All processes of all nodes."""
        return [pid for node in self.nodes for pid in node.pids]

    @property
    def running(self) -> bool:
        """All nodes are."""
        return all(node.running for node in self.nodes)

    def fresh(self, name: str = "jobs") -> str:
        """The URL of a prefix that no key has yet, until `clear`."""
        self._prefixes.append(f"hf{next(self._numbers)}:")
        return f"{self.url}?prefix={self._prefixes[-1]}"

    def lend(self, name: str = "jobs") -> str:
        """The same: a prefix costs nothing to make."""
        return self.fresh(name)

    def clear(self) -> None:
        """Deletes all keys of what `fresh` gave, on every master."""
        self.ensure()
        for node in self.masters():
            node.delete(self._prefixes)
        self._prefixes.clear()

    def masters(self) -> list[ClusterNode]:
        """Those that are masters now."""
        living = [node for node in self.nodes if node.running]
        return [node for node in living if _text(node.ask("ROLE")[0]) == "master"]

    def start(self, node: int | None = None) -> None:
        """All nodes, and the cluster serves on return; or only this one, which serves by itself."""
        if node is not None:
            return self.nodes[node].start()
        try:
            for each in self.nodes:
                each.start()
            if not self._formed:
                self._form()
                self.wait_ok()
        except BaseException:
            if not self._formed:
                self.remove()
            raise
        self._formed = True
        self.wait_ok()
        return None

    def ensure(self) -> None:
        """Serves on return, whatever an earlier test did to it."""
        for each in self.nodes:
            each.ensure()
        self.start()

    def wait_ok(self) -> None:
        """Until each running node says that all slots are served."""
        for node in [each for each in self.nodes if each.running]:
            self._wait(node, "cluster_state", "ok")

    def settle(self) -> None:
        """Until each replica has all that its master confirmed: replication is asynchronous."""
        for node in self.masters():
            if node.ask("INFO", "replication")["connected_slaves"]:
                wait_for(node.caught_up, "the replica has caught up", FORM_S)

    def kill(self, node: int | None = None) -> None:
        """kill -9 of all nodes, or of this one."""
        self._each(node, Server.kill)

    def freeze(self, node: int | None = None) -> None:
        self._each(node, Server.freeze)

    def thaw(self, node: int | None = None) -> None:
        self._each(node, Server.thaw)

    def stop(self, node: int | None = None) -> None:
        """In order, with the data kept."""
        self._each(node, Server.stop)

    def cut(self) -> None:
        """Ends all connections of clients to every node; the bus goes on."""
        self._each(None, lambda node: node.cut())

    def remove(self) -> None:
        """Leaves nothing."""
        self._each(None, Server.remove)
        self._formed = False

    def tail(self) -> str:
        """The last lines of each node's log."""
        return "\n".join(f"node {n}:\n{node.tail()}" for n, node in enumerate(self.nodes))

    def _each(self, node: int | None, act: Callable[[ClusterNode], None]) -> None:
        for each in self.nodes if node is None else [self.nodes[node]]:
            act(each)

    def _form(self) -> None:
        """What redis-cli --cluster create does: slots, epochs, meet, replicas."""
        bounds = [SLOTS * n // MASTERS for n in range(MASTERS + 1)]
        for n, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            if n < MASTERS:  # one by one, as ADDSLOTSRANGE came with 7.0
                node.ask("CLUSTER", "ADDSLOTS", *range(bounds[n], bounds[n + 1]))
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        for node in self.nodes:
            self._wait(node, "cluster_known_nodes", str(len(self.nodes)))
        for n, node in enumerate(self.nodes[MASTERS:]):
            node.ask("CLUSTER", "REPLICATE", self.nodes[n].id())
        for node in self.nodes[MASTERS:]:
            wait_for(node.follows, "the replica follows its master", FORM_S)

    def _wait(self, node: ClusterNode, name: str, value: str) -> None:
        """Until CLUSTER INFO of this node says so."""
        try:
            wait_for(lambda: node.state().get(name) == value, f"{name}:{value}", FORM_S)
        except ServerFailed as failure:
            raise ServerFailed(f"{failure}\n{self.tail()}") from None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
