"""What a server must be like before it is trusted with jobs; each refusal says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.servers.cluster import Cluster
from tests.servers.redis_node import RedisNode

from holdfast.core.errors import (
    ConfigError,
    HoldfastError,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnsupported,
)
from holdfast.stores.redis import server_check as opening
from holdfast.stores.redis.options import parse
from holdfast.stores.redis.store import RedisStore


async def refused(url: str) -> HoldfastError:
    store = RedisStore.from_url(url)
    with pytest.raises((StoreError, ConfigError)) as caught:
        await store.open()
    return caught.value


@contextmanager
def configured(node: RedisNode, name: str, value: str) -> Iterator[None]:
    with node.connect() as client:
        before = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)


async def test_an_evicting_server_is_refused(node: RedisNode) -> None:
    """P1: a server that deletes keys when memory runs short deletes jobs."""
    with configured(node, "maxmemory-policy", "allkeys-lru"):
        error = await refused(node.fresh())

    assert isinstance(error, StoreUnavailable)
    assert "allkeys-lru" in str(error)
    assert "noeviction" in str(error)


async def test_a_wrong_password_is_told_without_it(node: RedisNode) -> None:
    """P15: at once, not after retries, and never with the password."""
    url = node.fresh().replace("redis://", "redis://ann:hunter2@")

    error = await refused(url)

    assert isinstance(error, StoreUnavailable)
    assert "password is wrong" in str(error)
    assert "hunter2" not in str(error)


async def test_a_user_without_rights_is_told(node: RedisNode) -> None:
    """P15: NOPERM is no puzzle."""
    node.ask("ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", "+@read", "+info", "+client")
    try:
        error = await refused(node.fresh().replace("redis://", "redis://reader:pw@"))
    finally:
        node.ask("ACL", "DELUSER", "reader")

    assert isinstance(error, StoreReadOnly)
    assert "may not do all that is needed" in str(error)


async def test_a_store_without_config_rights_opens(node: RedisNode) -> None:
    """P15: managed servers forbid CONFIG; what matters is in INFO too."""
    node.ask("ACL", "SETUSER", "tame", "on", ">pw", "~*", "&*", "+@all", "-config")
    store = RedisStore.from_url(node.fresh().replace("redis://", "redis://tame:pw@"))
    try:
        await store.open()
        assert store.capabilities.durable
        await store.close()
    finally:
        node.ask("ACL", "DELUSER", "tame")


async def test_a_server_that_is_not_there_is_told(node: RedisNode) -> None:
    """P15: after a bounded time, with its host and port."""
    error = await refused("redis://127.0.0.1:1?retry_s=0.1")

    assert isinstance(error, StoreUnavailable)
    assert "127.0.0.1:1" in str(error)


async def test_a_newer_format_is_not_touched(node: RedisNode) -> None:
    """P1: an old program does not write what a newer one could not read."""
    url = node.fresh()
    key = f"{{{parse(url).prefix}0}}:meta"
    node.ask("HSET", key, "format", "99")

    error = await refused(url)

    assert isinstance(error, SchemaTooNew)
    assert error.facts["found"] == 99


async def test_the_number_of_shards_is_fixed(node: RedisNode) -> None:
    """P7: tenants would not be found in another number of shards."""
    url = node.fresh()
    store = RedisStore.from_url(f"{url}&shards=3")
    await store.open()
    await store.close()

    error = await refused(f"{url}&shards=4")
    again = RedisStore.from_url(url)
    await again.open()

    assert "was made with 3" in str(error)
    assert again.shards == 3
    await again.close()


async def test_anothers_keys_are_not_taken(node: RedisNode) -> None:
    """P15: a prefix that another application uses is refused."""
    url = node.fresh()
    node.ask("SET", f"{{{parse(url).prefix}0}}:meta", "mine")

    error = await refused(url)

    assert isinstance(error, StoreCorrupt)
    assert "prefix=" in str(error)


async def test_a_cluster_is_not_taken_for_one_server(node: RedisNode, cluster: Cluster) -> None:
    """P15: nor one server for a cluster; the error names the scheme."""
    first = await refused(cluster.fresh().replace("redis+cluster://", "redis://").split(",")[0])
    second = await refused(node.fresh().replace("redis://", "redis+cluster://"))

    assert "redis+cluster://" in str(first)
    assert "write redis://" in str(second)


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        ({"redis_version": "6.0.16"}, StoreUnsupported),
        ({"redis_version": "5.0"}, StoreUnsupported),
        ({"redis_version": "7.2.4", "role": "slave"}, StoreReadOnly),
    ],
)
def test_an_old_or_following_server_is_refused(info: dict[str, str], kind: type) -> None:
    """P15: too old, or a replica."""
    server = opening.Server("redis://h:1", info["redis_version"], info)

    with pytest.raises(kind):
        opening.check(server, parse("redis://h:1"))


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "8.0.1", "255.255.255"])
def test_newer_servers_are_taken(version: str) -> None:
    """P15: whatever comes after the oldest that works."""
    server = opening.Server("redis://h:1", version, {"redis_version": version})

    opening.check(server, parse("redis://h:1"))

    assert not server.durable
