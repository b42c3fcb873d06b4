"""Checks of the servers when a store is opened, and its format. Errors say what to do."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import msgspec

from holdfast.core.errors import (
    ConfigError,
    SchemaTooNew,
    SchemaTooOld,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnsupported,
)
from holdfast.stores.redis.connection import Links
from holdfast.stores.redis.layout import FORMAT
from holdfast.stores.redis.options import CLUSTER_SHARDS, Options
from holdfast.stores.redis.routes import Address
from holdfast.stores.redis.shards import Shards

REDIS_MIN = (6, 2)
KEEPING = "noeviction"


class Server(msgspec.Struct, frozen=True):
    """What one server says of itself."""

    address: str
    version: str
    info: dict[str, str]
    appendfsync: str | None = None
    """None where CONFIG is forbidden, as it is on some managed servers."""

    @property
    def durable(self) -> bool:
        """It writes a log of its commands."""
        return self.info.get("aof_enabled") == "1"


async def look(links: Links) -> list[Server]:
    """All masters that hold slots, or the one server."""
    options = links.options
    if not options.cluster:
        return [await _ask(links, options.name, None)]
    return [
        await _ask(links, f"{options.name} ({address[0]}:{address[1]})", address)
        for address in await links.masters()
    ]


async def _ask(links: Links, name: str, address: Address | None) -> Server:
    answer = await links.command("INFO", address=address)
    try:
        found = await links.command("CONFIG", "GET", "appendfsync", address=address)
    except StoreError:
        found = []
    values = found.values() if isinstance(found, dict) else found[1:2]
    how = next((each.decode() if isinstance(each, bytes) else each for each in values), None)
    return _server(name, answer, how)


def _server(address: str, answer: Any, appendfsync: str | None) -> Server:
    if isinstance(answer, bytes):
        lines = (line.split(":", 1) for line in answer.decode().splitlines() if ":" in line)
        info = dict(lines)
    else:
        info = {str(name): str(value) for name, value in answer.items()}
    return Server(address, info.get("redis_version", "0"), info, appendfsync)


def check(server: Server, options: Options) -> None:
    """Refuses a server that could lose jobs, or cannot do what is needed."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", server.version)[:2])
    if numbers < REDIS_MIN:
        needed = ".".join(map(str, REDIS_MIN))
        feature = f"Redis {server.version}; {needed} or newer is needed"
        raise StoreUnsupported(store=server.address, feature=feature)
    policy = server.info.get("maxmemory_policy", KEEPING)
    if policy != KEEPING:
        why = (
            f"maxmemory-policy is {policy!r}, which deletes jobs when memory runs short; "
            f"set it to {KEEPING}: CONFIG SET maxmemory-policy {KEEPING}"
        )
        raise StoreUnavailable(store=server.address, why=why)
    if server.info.get("role") == "slave" and not options.cluster:
        raise StoreReadOnly(store=server.address, why="it is a replica: name its master instead")
    enabled = server.info.get("cluster_enabled") == "1"
    if enabled and not options.cluster:
        why = f"it is part of a cluster: write {'rediss' if options.tls else 'redis'}+cluster://"
        raise ConfigError(field="store", why=why)
    if options.cluster and not enabled:
        why = f"{server.address} is not a cluster: write redis:// instead of redis+cluster://"
        raise ConfigError(field="store", why=why)


async def agree(links: Links, *, migrate: bool) -> int:
    """The number of shards of the store, which is created if it does not exist. With `migrate` a
    store of an older format is converted.
    """
    options = links.options
    wanted = options.shards or (CLUSTER_SHARDS if options.cluster else 1)
    tag = f"{{{options.prefix}0}}"
    key = f"{tag}:meta"
    text = resources.files("holdfast.stores.redis").joinpath("lua/open.lua").read_text("utf-8")
    found, shards = await links.command("EVAL", text, 2, key, tag, FORMAT, wanted, key=key)
    try:
        number = int(shards)
        format = int(found)
    except ValueError:
        why = f"{key} is not ours: choose another prefix="
        raise StoreCorrupt(store=options.name, why=why) from None
    if format > FORMAT:
        raise SchemaTooNew(store=options.name, found=format, known=FORMAT)
    if format < FORMAT and not migrate:
        raise SchemaTooOld(store=options.name, found=format, known=FORMAT)
    if options.shards is not None and number != options.shards:
        why = (
            f"shards is {options.shards}, but the store {options.prefix!r} was made with "
            f"{number}; leave it out, or choose another prefix="
        )
        raise ConfigError(field="store", why=why)
    if format < FORMAT:
        await _migrate(links, number)
        await links.command("HSET", key, "format", FORMAT, key=key)
    return number


async def _migrate(links: Links, number: int) -> None:
    """Converts all shards to this format: safe to repeat, and from many processes."""
    shards = Shards(links, None, number, links.options.events)
    for shard in shards.all():
        if not await shards.call("migrate", shard, (), None):
            why = (
                "it holds jobs in a format that this version cannot convert; "
                "let the version that wrote it finish its jobs first, or choose another prefix="
            )
            raise StoreUnsupported(store=links.options.name, feature=why)
