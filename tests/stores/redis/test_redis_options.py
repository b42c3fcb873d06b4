"""What a redis:// URL may say, and how it is refused."""

from __future__ import annotations

import pytest

from holdfast.core.errors import ConfigError
from holdfast.stores.redis.options import parse


def test_a_url_names_server_login_and_database() -> None:
    """Everything has a default but the scheme."""
    options = parse("rediss://ann:s%2Fecret@db.internal:7000/3?prefix=shop:&events=off&pool=5")

    assert options.nodes == (("db.internal", 7000),)
    assert (options.username, options.password) == ("ann", "s/ecret")
    assert (options.tls, options.cluster, options.db) == (True, False, 3)
    assert (options.prefix, options.events, options.pool) == ("shop:", False, 5)
    assert parse("redis://").nodes == (("localhost", 6379),)


def test_a_cluster_may_be_entered_by_several_servers() -> None:
    """Any of them shows the way to the others."""
    options = parse("redis+cluster://:pw@a:1,b:2,[::1]:3")

    assert options.nodes == (("a", 1), ("b", 2), ("::1", 3))
    assert (options.username, options.password, options.cluster) == (None, "pw", True)


def test_the_name_of_a_place_has_no_password() -> None:
    """Errors name the place; logs must not leak."""
    assert parse("redis://ann:secret@h:1/2").name == "redis://h:1/2"
    assert parse("rediss+cluster://ann:secret@h:1,i:2").name == "rediss+cluster://h:1,i:2"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://h?prefx=a:", "Did you mean 'prefix'?"),
        ("redis://h?prefix={a}", "prefix is '{a}'"),
        ("redis://h?prefix=", "prefix is ''"),
        ("redis://h?shards=0", "shards is '0', must be a whole number from 1 to 256"),
        ("redis://h?shards=two", "shards is 'two'"),
        ("redis://h?events=of", "events is 'of', must be on or off. Did you mean 'off'?"),
        ("redis://h?timeout_s=-1", "timeout_s is '-1'"),
        ("redis://h?timeout_s=nan", "timeout_s is 'nan'"),
        ("redis://h?wait_replicas=99", "wait_replicas is '99'"),
        ("redis://h:port", "'h:port' is no server"),
        ("redis://a:1,b:2", "only redis+cluster://"),
        ("redis://h/jobs", "the database must be a number"),
        ("redis+cluster://h/1", "a cluster has only database 0"),
        ("redis://h?ca=", "ca must not be empty"),
        ("redis://h?migrate=yes", "migrate is 'yes', must be auto or never"),
    ],
)
def test_what_is_wrong_is_named(url: str, words: str) -> None:
    """P15: the field, the value and what it must be."""
    with pytest.raises(ConfigError) as caught:
        parse(url)

    assert words in str(caught.value)
