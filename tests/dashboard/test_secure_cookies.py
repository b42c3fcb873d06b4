"""Cookies go over TLS only, also where a proxy before the service ends the TLS."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.asgi import Client

from holdfast.core.errors import ConfigError
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.pages import dashboard
from holdfast.service.proxies import VARIABLE, Proxies
from holdfast.service.service import Service
from holdfast.stores import open_store

TLS = {"x-forwarded-proto": "https"}


async def cookie(headers: dict[str, str], client: tuple[str, int] | None, scheme: str) -> str:
    """The cookie that a first page sets, for a browser that comes by this way."""
    service = Service(open_store("memory://"), NoAuth())
    await service.store.open()
    inner = application(service, mounts=[dashboard], owns_store=False)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "client": client, "scheme": scheme}, receive, send)

    try:
        answer = await Client(app).get("/", **headers)
        assert answer.status == 200
        return answer.headers["set-cookie"].lower()
    finally:
        service.close()
        await service.store.close()


@pytest.mark.parametrize(
    ("headers", "client", "scheme", "secure"),
    [
        (TLS, ("127.0.0.1", 1), "http", True),
        ({"x-forwarded-proto": "https, http"}, ("127.0.0.1", 1), "http", True),
        ({"x-forwarded-proto": "HTTPS"}, ("127.0.0.1", 1), "http", True),
        ({}, ("10.0.0.1", 1), "https", True),
        ({}, ("127.0.0.1", 1), "http", False),
        ({"x-forwarded-proto": "http"}, ("127.0.0.1", 1), "http", False),
        ({"x-forwarded-proto": "gopher"}, ("127.0.0.1", 1), "http", False),
        (TLS, ("10.0.0.1", 1), "http", False),
        (TLS, None, "http", False),
    ],
)
async def test_a_cookie_is_secure_where_the_page_came_over_tls(
    headers: dict[str, str], client: tuple[str, int] | None, scheme: str, secure: bool
) -> None:
    """By the connection, or by the word of a proxy that is trusted: this machine's, if not said."""
    assert ("; secure" in await cookie(headers, client, scheme)) is secure


@pytest.mark.parametrize(
    ("said", "client", "secure"),
    [
        ("10.0.0.0/8, 192.168.1.7", "10.1.2.3", True),
        ("10.0.0.0/8, 192.168.1.7", "192.168.1.7", True),
        ("10.0.0.0/8, 192.168.1.7", "192.168.1.8", False),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("*", "8.8.8.8", True),
        ("fd00::/8", "fd12::1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("", "127.0.0.1", False),
    ],
)
async def test_the_operator_says_which_proxies_are_believed(
    monkeypatch: pytest.MonkeyPatch, said: str, client: str, secure: bool
) -> None:
    """By FORWARDED_ALLOW_IPS, as other servers are told."""
    monkeypatch.setenv(VARIABLE, said)

    assert ("; secure" in await cookie(TLS, (client, 1), "http")) is secure


def test_an_address_that_is_none_is_told() -> None:
    """At the start, not by cookies that are quietly less safe."""
    with pytest.raises(ConfigError, match=r"proxy\.internal"):
        Proxies("10.0.0.1, proxy.internal")
