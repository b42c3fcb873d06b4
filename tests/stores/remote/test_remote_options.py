"""What an http:// URL may say, where the token comes from, and how it is refused."""

from __future__ import annotations

import pytest

from holdfast.core.errors import ConfigError
from holdfast.stores import open_store
from holdfast.stores.remote.options import TOKEN_ENV, parse
from holdfast.stores.remote.store import RemoteStore


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the run says nothing."""
    monkeypatch.delenv(TOKEN_ENV, raising=False)


def test_a_url_is_read_whole() -> None:
    """Host, port, the path before ours, and every option."""
    found = parse(
        "https://jobs.internal:8443/queue/?tenant=acme&timeout_s=2.5&connect_s=1&pool=4"
        "&breaker=3&breaker_s=0.5&ca=/etc/ca.pem&verify=off"
    )

    assert found.base == found.name == "https://jobs.internal:8443/queue"
    assert (found.tenant, found.timeout_s, found.connect_s, found.pool) == ("acme", 2.5, 1.0, 4)
    assert (found.breaker, found.breaker_s, found.ca) == (3, 0.5, "/etc/ca.pem")
    assert (found.verify, found.token) == (False, None)


def test_both_schemes_are_known_to_open_store() -> None:
    """The store is made without a connection."""
    for url in ("http://localhost:3100", "https://[::1]:3100"):
        assert isinstance(open_store(url).inner, RemoteStore)


@pytest.mark.parametrize("login", [":s3cret", "s3cret", "anybody:s3cret"])
def test_a_token_may_be_the_login(login: str) -> None:
    """As a password, or alone."""
    found = parse(f"http://{login}@localhost:3100")

    assert found.token == "s3cret"
    assert "s3cret" not in found.name
    assert "s3cret" not in repr(found)


def test_a_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the usual name, or by the one that the URL names."""
    monkeypatch.setenv(TOKEN_ENV, "usual")
    monkeypatch.setenv("OTHER", "other")

    assert parse("http://localhost").token == "usual"
    assert parse("http://localhost?token_env=OTHER").token == "other"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://localhost?tenat=acme", "Did you mean 'tenant'?"),
        ("http://localhost?token=s3cret", "token_env"),
        ("http://localhost?token_env=NOT_SET_AT_ALL", "NOT_SET_AT_ALL is not set"),
        ("http://localhost?timeout_s=never", "timeout_s is 'never'"),
        ("http://localhost?timeout_s=nan", "timeout_s is 'nan'"),
        ("http://localhost?pool=0", "pool is '0'"),
        ("http://localhost?verify=no", "must be on or off"),
        ("http://localhost?tenant=", "tenant: must not be empty"),
        ("http://localhost:port", "names no service"),
        ("http://", "names no service"),
    ],
)
def test_what_is_wrong_is_named(url: str, words: str) -> None:
    """And a secret is not repeated."""
    with pytest.raises(ConfigError) as caught:
        parse(url)

    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.facts["field"] == "store"


def test_a_token_in_clear_is_noticed() -> None:
    """Over plain HTTP to another machine; not on this one, and not without a token."""
    assert parse("http://:t@jobs.internal").in_clear
    assert not parse("https://:t@jobs.internal").in_clear
    assert not parse("http://:t@127.0.0.1:3100").in_clear
    assert not parse("http://jobs.internal").in_clear
