"""Mode jwt with a set of keys that its issuer publishes, and changes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.service.asgi import Answer
from tests.service.minted import AUDIENCE, ISSUER, asked, jwk, mint, refused, rules, serving

from holdfast.core.errors import ConfigError
from holdfast.service.auth.choice import auth_of
from holdfast.service.auth.jwks import COOL_S, FRESH_S, RETRY_S, STALE_S, KeySet, key_set
from holdfast.service.auth.settings import ALGORITHMS, AuthSettings
from holdfast.service.auth.tokens import Tokens
from holdfast.service.rights import Caller


class Issuer:
    """Publishes what it is told to; counts who asks; may be out of order. Its clock is ours."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.told: Any = {"keys": list(keys)}
        self.fetches = 0
        self.down = False
        self.now = 0.0
        self.keys = KeySet(self._fetch, "the issuer", ALGORITHMS, clock=lambda: self.now)

    def _fetch(self) -> Any:
        self.fetches += 1
        if self.down:
            raise OSError("no route to the issuer")
        return self.told

    async def ask(self, token: str) -> Answer:
        """As a service that remembers no token."""
        return await asked(Tokens(self.keys, rules()), token)

    async def settled(self) -> None:
        """What is fetched aside has come."""
        if self.keys._fetching is not None:
            await self.keys._fetching


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_key_of_the_set_verifies(algorithm: str) -> None:
    """The one that the token names."""
    issuer = Issuer(jwk(algorithm, "a"), jwk(algorithm, "b", 1))

    assert (await issuer.ask(mint(algorithm, "a"))).status == 200
    assert (await issuer.ask(mint(algorithm, "b", 1))).status == 200
    refused(await issuer.ask(mint(algorithm, "a", 1)), 401)
    assert issuer.fetches == 1


async def test_a_token_without_a_key_id_is_for_the_only_key() -> None:
    """With more than one nobody guesses."""
    assert (await Issuer(jwk("ES256", "a")).ask(mint("ES256"))).status == 200
    assert (await Issuer(jwk("ES256", None)).ask(mint("ES256"))).status == 200
    refused(await Issuer(jwk("ES256", "a"), jwk("ES256", "b", 1)).ask(mint("ES256")), 401)


async def test_a_key_keeps_its_algorithm() -> None:
    """The token's header does not choose: HS256 with what the set publishes is refused."""
    issuer = Issuer(jwk("ES256", "a"), jwk("RS256", "b"))

    refused(await issuer.ask(mint("HS256", "a")), 401)
    refused(await issuer.ask(mint("ES256", "b")), 401)


@pytest.mark.parametrize(
    "key",
    [
        jwk("RS256", "a", alg="RS512"),
        jwk("RS256", "a", alg="HS256"),
        jwk("RS256", "a", alg="none"),
        jwk("RS256", "a", use="enc"),
        jwk("RS256", "a", kty="?"),
        jwk("RS256", "a", d="AQAB"),
        {"kty": "oct", "kid": "a", "k": "c2hvcnQ"},
        {"kid": "a"},
        "a",
    ],
    ids=[
        "other-hash",
        "confused",
        "none",
        "for-encryption",
        "unknown-kind",
        "private",
        "short",
        "empty",
        "no-object",
    ],
)
async def test_keys_that_are_not_for_us_are_left_out(key: Any) -> None:
    """Beside one that is."""
    issuer = Issuer(key, jwk("ES256", "good"))

    refused(await issuer.ask(mint("RS256", "a")), 401)
    assert (await issuer.ask(mint("ES256", "good"))).status == 200


# -- rotation --------------------------------------------------------------------------------------


async def test_a_new_key_is_fetched_when_a_token_names_it() -> None:
    """The issuer changes its keys and tells nobody."""
    issuer = Issuer(jwk("ES256", "old"))
    assert (await issuer.ask(mint("ES256", "old"))).status == 200

    issuer.told = {"keys": [jwk("ES256", "new", 1)]}
    issuer.now += COOL_S

    assert (await issuer.ask(mint("ES256", "new", 1))).status == 200
    refused(await issuer.ask(mint("ES256", "old")), 401)


async def test_a_key_that_was_withdrawn_ends_with_the_next_fetch() -> None:
    """Which comes by itself, and is waited for by nobody."""
    issuer = Issuer(jwk("ES256", "old"))
    await issuer.ask(mint("ES256", "old"))
    issuer.told = {"keys": [jwk("ES256", "new", 1)]}
    issuer.now += FRESH_S + 1

    assert (await issuer.ask(mint("ES256", "old"))).status == 200
    await issuer.settled()
    refused(await issuer.ask(mint("ES256", "old")), 401)
    assert issuer.fetches == 2


async def test_unknown_keys_do_not_make_us_call_the_issuer() -> None:
    """A stranger may invent as many as he likes."""
    issuer = Issuer(jwk("ES256", "a"))
    await issuer.ask(mint("ES256", "a"))
    for number in range(50):
        refused(await issuer.ask(mint("ES256", f"invented-{number}")), 401)
    assert issuer.fetches == 1

    issuer.now += COOL_S
    many = [issuer.ask(mint("ES256", f"invented-{number}")) for number in range(50)]
    for answer in await asyncio.gather(*many):
        refused(answer, 401)
    assert issuer.fetches == 2


# -- an issuer that does not answer ----------------------------------------------------------------


async def test_keys_outlive_an_outage_of_their_issuer() -> None:
    """For a bounded time: withdrawing a key must not be stopped by cutting a wire."""
    issuer = Issuer(jwk("ES256", "a"))
    await issuer.ask(mint("ES256", "a"))
    issuer.down = True

    issuer.now += FRESH_S + 1
    assert (await issuer.ask(mint("ES256", "a"))).status == 200
    await issuer.settled()
    issuer.now += STALE_S
    answer = await issuer.ask(mint("ES256", "a"))

    assert (answer.status, answer.json["code"]) == (503, "AUTH_UNAVAILABLE")


@pytest.mark.parametrize("told", [None, [], {}, {"keys": []}, {"keys": {}}, {"keys": [{}]}, 7])
async def test_without_any_key_the_service_says_so(told: Any) -> None:
    """503, to be tried again: the token may be good. It comes back when the issuer does."""
    issuer = Issuer()
    issuer.told = told

    answer = await issuer.ask(mint("ES256", "a"))
    assert (answer.status, answer.json["code"]) == (503, "AUTH_UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"

    issuer.told = {"keys": [jwk("ES256", "a")]}
    issuer.now += RETRY_S
    assert (await issuer.ask(mint("ES256", "a"))).status == 200


async def test_a_set_without_usable_keys_replaces_nothing() -> None:
    """An issuer that answers with an error page has not withdrawn its keys."""
    issuer = Issuer(jwk("ES256", "a"))
    await issuer.ask(mint("ES256", "a"))
    issuer.told = {"error": "try later"}
    issuer.now += FRESH_S + 1
    await issuer.ask(mint("ES256", "a"))
    await issuer.settled()

    assert (await issuer.ask(mint("ES256", "a"))).status == 200


# -- by its URL ------------------------------------------------------------------------------------


@pytest.fixture
def published() -> Iterator[tuple[str, dict[str, Any]]]:
    """A URL, and what it gives by path."""
    paths: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = paths.get(self.path)
            self.send_response(302 if isinstance(found, str) else 404 if found is None else 200)
            if isinstance(found, str):
                self.send_header("location", found)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", paths
        finally:
            server.shutdown()
            thread.join()


def chosen(url: str) -> AuthSettings:
    return AuthSettings.of(jwks=url, jwt_issuer=ISSUER, jwt_audience=(AUDIENCE,))


async def test_a_set_is_fetched_over_http(published: tuple[str, dict[str, Any]]) -> None:
    """With what is configured, as `holdfast serve` does it."""
    url, paths = published
    paths["/jwks"] = {"keys": [jwk("RS256", "a"), jwk("HS256", "s")]}

    async with serving(auth_of(chosen(f"{url}/jwks"))) as client:
        good = {"authorization": f"Bearer {mint('RS256', 'a')}"}
        assert (await client.get("/v1/queues", **good)).status == 200
        # What is published is no secret, so nothing can be signed with it.
        shared = {"authorization": f"Bearer {mint('HS256', 's')}"}
        refused(await client.get("/v1/queues", **shared), 401)


async def test_what_is_not_a_set_at_the_url_is_an_outage(
    published: tuple[str, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """Also a redirect, which could lead anywhere. The log has the place without its query."""
    url, paths = published
    paths["/moved"] = f"{url}/jwks"
    paths["/jwks"] = {"keys": [jwk("RS256", "a")]}
    for path in ("/nowhere?secret=1", "/moved?secret=1"):
        answer = await asked(auth_of(chosen(url + path)), mint("RS256", "a"))
        assert answer.json["code"] == "AUTH_UNAVAILABLE"

    assert "/nowhere" in caplog.text
    assert "secret" not in caplog.text


async def test_a_set_in_a_file_is_followed(tmp_path: Path) -> None:
    """It may hold secrets too: nobody publishes it."""
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [jwk("HS256", "s"), jwk("EdDSA", "e")]}))
    auth = auth_of(chosen(path.as_uri()))

    assert (await asked(auth, mint("HS256", "s"))).status == 200
    assert (await asked(auth, mint("EdDSA", "e"))).status == 200
    refused(await asked(auth, mint("EdDSA", "s")), 401)


@pytest.mark.parametrize(
    ("url", "algorithm"),
    [
        ("ftp://issuer.test/jwks", None),
        ("issuer.test/jwks", None),
        ("http:///jwks", None),
        ("file:///nowhere/keys.json", None),
        ("https://issuer.test/jwks", "HS256"),
    ],
)
def test_a_place_that_cannot_be_is_refused(url: str, algorithm: str | None) -> None:
    """At the start."""
    with pytest.raises(ConfigError):
        key_set(url, algorithm)


@pytest.mark.parametrize("body", ["", "{", "[]", '{"keys": []}', '{"keys": [{"kty": "oct"}]}'])
def test_a_file_without_a_usable_key_is_refused(body: str, tmp_path: Path) -> None:
    """At the start."""
    path = tmp_path / "keys.json"
    path.write_text(body)

    with pytest.raises(ConfigError):
        key_set(path.as_uri(), None)


async def test_the_algorithm_of_a_set_can_be_narrowed(tmp_path: Path) -> None:
    """To the one that the issuer is known to use."""
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [jwk("RS256", "r"), jwk("EdDSA", "e")]}))
    auth = Tokens(key_set(path.as_uri(), "EdDSA"), rules())

    assert (await asked(auth, mint("EdDSA", "e"))).status == 200
    refused(await asked(auth, mint("RS256", "r")), 401)


async def test_callers_of_two_keys_are_told_apart() -> None:
    """What one token grants is not remembered for another."""
    issuer = Issuer(jwk("ES256", "a"), jwk("ES256", "b", 1))
    auth = Tokens(issuer.keys, rules())

    class Asked:
        def __init__(self, token: str) -> None:
            from starlette.datastructures import Headers

            self.headers = Headers({"authorization": f"Bearer {token}"})

    async def caller(*key: Any, **claims: Any) -> Caller:
        return await auth.caller(Asked(mint("ES256", *key, **claims)))  # type: ignore[arg-type]

    found = [await caller("a", tid="one"), await caller("b", 1, tid="two")]
    assert [one.tenant for one in found] == ["one", "two"]
    assert all(one.until is not None and not one.over for one in found)
