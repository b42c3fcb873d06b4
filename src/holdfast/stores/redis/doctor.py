"""What `holdfast doctor` can say of a Redis store: its servers, how they keep, and their room."""

from __future__ import annotations

import time
from collections.abc import Iterator

from holdfast.core.finding import Finding, Level
from holdfast.store import Store
from holdfast.stores.redis.layout import FORMAT
from holdfast.stores.redis.server_check import Server, look
from holdfast.stores.redis.store import RedisStore

MEMORY_USED_MAX = 0.8
CLOCK_S_MAX = 1.0
SLOTS = 16384


async def examine(store: Store) -> list[Finding]:
    """Looks at an open store and its servers."""
    assert isinstance(store, RedisStore), "operate.examine picks the doctor by the URL"
    links = store.links
    found: list[Finding] = []
    for server in await look(links):
        found += [_version(server), *_keeping(server), _memory(server)]
        found += [_replicas(server, store.options.wait_replicas)]
    found.append(await _clock(store))
    if store.options.cluster:
        found.append(await _slots(store))
    damaged = await store.damaged()
    if damaged:
        words = f"{damaged} rows cannot be read and are set aside, by number in the key `damaged`"
        found.append(Finding(Level.BAD, "rows", words))
    words = f"format {FORMAT}, {store.shards} shard(s), prefix {store.options.prefix!r}"
    return [*found, Finding(Level.OK, "layout", words)]


def _version(server: Server) -> Finding:
    name = "Valkey" if server.info.get("server_name") == "valkey" else "Redis"
    version = server.info.get("valkey_version", server.version)
    return Finding(Level.OK, "version", f"{name} {version} at {server.address}")


def _keeping(server: Server) -> Iterator[Finding]:
    if not server.durable:
        words = (
            "appendonly is off: jobs since the last snapshot are lost when the server ends; "
            "set appendonly yes"
        )
        yield Finding(Level.WARNING, "durability", words)
        return
    how = server.appendfsync
    if how == "always":
        words = "appendonly, appendfsync always: every confirmed job is on disk"
        yield Finding(Level.OK, "durability", words)
    elif how is None:
        words = "appendonly is on; CONFIG is forbidden, so ask the operator for appendfsync"
        yield Finding(Level.OK, "durability", words)
    else:
        most = "about the last second" if how == "everysec" else "up to half a minute"
        words = f"appendfsync {how}: a crash of the machine may take {most} of confirmed jobs"
        yield Finding(Level.WARNING, "durability", words)
    if server.info.get("aof_last_write_status", "ok") != "ok":
        words = "the append-only file cannot be written: is the disk full?"
        yield Finding(Level.BAD, "durability", words)


def _memory(server: Server) -> Finding:
    used, most = int(server.info.get("used_memory", 0)), int(server.info.get("maxmemory", 0))
    policy = server.info.get("maxmemory_policy", "?")
    if most == 0:
        words = f"{_mega(used)} used, no maxmemory ({policy}): the machine's memory is the limit"
        return Finding(Level.OK, "memory", words)
    words = f"{_mega(used)} of {_mega(most)} used ({policy})"
    if used > MEMORY_USED_MAX * most:
        return Finding(Level.WARNING, "memory", f"{words}: past it, enqueue is refused")
    return Finding(Level.OK, "memory", words)


def _replicas(server: Server, wanted: int) -> Finding:
    number = int(server.info.get("connected_slaves", 0))
    if number < wanted:
        words = f"{number} connected, wait_replicas={wanted}: enqueue and ack will fail"
        return Finding(Level.BAD, "replicas", words)
    words = f"{number} connected"
    if number and not wanted:
        words += ", which may lack the newest jobs at a failover; see wait_replicas"
    return Finding(Level.OK, "replicas", words)


async def _clock(store: RedisStore) -> Finding:
    before = time.time()
    seconds, micros = await store.links.command("TIME", key="clock")
    off = int(seconds) + int(micros) / 1e6 - (before + time.time()) / 2
    if abs(off) > CLOCK_S_MAX:
        words = f"the server's is {off:+.1f} s from this machine's; the server's decides"
        return Finding(Level.WARNING, "clock", words)
    return Finding(Level.OK, "clock", f"the server's is {off * 1000:+.0f} ms from this machine's")


async def _slots(store: RedisStore) -> Finding:
    answer = await store.links.command("CLUSTER", "INFO", key="slots")
    text = answer.decode() if isinstance(answer, bytes) else str(answer)
    info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fine = int(info.get("cluster_slots_ok", 0))
    if info.get("cluster_state") != "ok" or fine < SLOTS:
        words = f"{fine} of {SLOTS} are served: tenants of the others cannot be reached"
        return Finding(Level.BAD, "slots", words)
    masters = len(await store.links.masters())
    return Finding(Level.OK, "slots", f"all {SLOTS} are served by {masters} masters")


def _mega(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MB"
