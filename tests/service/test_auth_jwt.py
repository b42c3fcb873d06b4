"""Mode jwt: which tokens hold. Every way we know to forge or misuse one is tried."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from tests.service.minted import (
    EVERY_RIGHT,
    asked,
    claims,
    mint,
    pem,
    private,
    public,
    refused,
    rules,
    serving,
    tokens,
)

from holdfast.core.errors import ConfigError
from holdfast.service.auth.jwks import Key, OneKey, read_key
from holdfast.service.auth.tokens import RECENT_MAX, RECENT_S, Recent, Tokens
from holdfast.service.rights import Caller

ALGORITHMS = ["HS256", "RS256", "ES256", "EdDSA"]


def part(value: Any) -> str:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def forged(header: dict[str, Any], secret: bytes | None, **more: Any) -> str:
    """A token made by hand, with an HMAC of whatever an attacker has."""
    text = f"{part(header)}.{part(claims(**more))}"
    if secret is None:
        return f"{text}."
    return f"{text}.{part(hmac.digest(secret, text.encode(), hashlib.sha256))}"


# -- what holds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_signed_token_is_let_in(algorithm: str, tmp_path: Path) -> None:
    """With the key as an operator gives it."""
    path = tmp_path / "key"
    path.write_bytes(pem(algorithm) + b"\n")
    auth = Tokens(OneKey(read_key(str(path), algorithm)), rules())

    assert (await asked(auth, mint(algorithm))).status == 200
    refused(await asked(auth, mint(algorithm, number=1)), 401)


async def test_the_clocks_may_differ_by_the_leeway() -> None:
    """And by no more."""
    now = time.time()
    late, early = mint(exp=now - 20), mint(nbf=now + 20)

    for token in (late, early):
        assert (await asked(tokens(leeway_s=30.0), token)).status == 200
        refused(await asked(tokens(leeway_s=10.0), token), 401)


async def test_one_of_several_audiences_is_enough() -> None:
    """On either side."""
    auth = tokens(audience=("a", "b"))

    assert (await asked(auth, mint(aud="b"))).status == 200
    assert (await asked(auth, mint(aud=["x", "a"]))).status == 200
    refused(await asked(auth, mint(aud=["x", "y"])), 401)


# -- what does not ---------------------------------------------------------------------------------

NOW = time.time()
DAY = 24 * 3600
"""Far enough: the instant of a case is taken when the tests are collected, long before it runs."""
BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "expired": {"exp": NOW - 60},
    "never expires": {"exp": None},
    "expires at a word": {"exp": "tomorrow"},
    "expires at nothing": {"exp": []},
    "expires at infinity": {"exp": float("inf")},
    "expires at no number": {"exp": float("nan")},
    "not yet": {"nbf": NOW + DAY},
    "not yet, at a word": {"nbf": "tomorrow"},
    "made in the future": {"iat": NOW + DAY},
    "another issuer": {"iss": "https://evil.test/"},
    "no issuer": {"iss": None},
    "an issuer that almost fits": {"iss": "https://issuer.test"},
    "another audience": {"aud": "elsewhere"},
    "no audience": {"aud": None},
    "an empty audience": {"aud": []},
    "an audience in a dict": {"aud": {"holdfast": True}},
    "a subject that is a number": {"sub": 7},
}


@pytest.mark.parametrize("bad", BAD_CLAIMS.values(), ids=BAD_CLAIMS)
async def test_claims_that_do_not_fit_are_refused(bad: dict[str, Any]) -> None:
    """Though the signature is right."""
    text = f"{part({'alg': 'HS256'})}.{part(claims(**bad))}"
    signed = f"{text}.{part(hmac.digest(private('HS256').encode(), text.encode(), 'sha256'))}"

    answer = await asked(tokens(), signed)

    refused(answer, 401)
    assert signed.encode() not in answer.body


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", None, 5, ["HS256"]], ids=str)
@pytest.mark.parametrize("algorithm", ["HS256", "RS256"])
async def test_unsigned_tokens_are_refused(algorithm: str, alg: Any) -> None:
    """Whatever the header calls it, with and without a signature."""
    for secret in (None, b"", b"x"):
        refused(await asked(tokens(algorithm), forged({"alg": alg}, secret)), 401)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_public_key_is_no_secret(algorithm: str) -> None:
    """HS256 with the public key, which everybody has: the oldest confusion of algorithms."""
    for secret in (pem(algorithm), pem(algorithm).strip()):
        token = forged({"alg": "HS256", "typ": "JWT"}, secret)
        assert "algorithm" in refused(await asked(tokens(algorithm), token), 401)


@pytest.mark.parametrize("named", ["HS384", "HS512", "RS256", "PS256", "ES256", "EdDSA"])
async def test_the_header_does_not_choose_the_algorithm(named: str) -> None:
    """A key is for one algorithm, also where the signature would be right for it."""
    token = forged({"alg": named}, private("HS256").encode())

    refused(await asked(tokens("HS256"), token), 401)


async def test_another_hash_with_the_same_key_is_refused() -> None:
    """RS512 by the true signer is not RS256."""
    token = jwt.encode(claims(), private("RS256"), "RS512")

    refused(await asked(tokens("RS256"), token), 401)


async def test_keys_that_a_token_brings_along_are_not_looked_at() -> None:
    """`jwk`, `jku`, `x5u` and a `kid` with a path in it are an attacker's words."""
    mine = {"kty": "oct", "k": part(b"x" * 32)}
    headers: list[dict[str, Any]] = [
        {"jwk": mine},
        {"jku": "https://evil.test/jwks"},
        {"x5u": "https://evil.test/x"},
        {"kid": "../../../dev/null"},
        {"kid": 5},
        {"kid": {}},
        {"crit": ["x"]},
        {"b64": False, "crit": ["b64"]},
    ]
    for header in headers:
        token = forged({"alg": "HS256", **header}, b"x" * 32)
        refused(await asked(tokens(), token), 401)


GOOD = mint()
HEAD, BODY, SIGNATURE = GOOD.split(".")
MALFORMED = {
    "nothing": "",
    "a word": "token",
    "dots": "..",
    "two parts": f"{HEAD}.{BODY}",
    "four parts": f"{GOOD}.x",
    "no signature": f"{HEAD}.{BODY}.",
    "a cut signature": GOOD[:-4],
    "another signature": f"{HEAD}.{BODY}.{part(b'x' * 32)}",
    "another body": f"{HEAD}.{part(claims(sub='other'))}.{SIGNATURE}",
    "another head": f"{part({'alg': 'HS256', 'x': 1})}.{BODY}.{SIGNATURE}",
    "a head that is no JSON": f"{part(b'{')}.{BODY}.{SIGNATURE}",
    "a head that is a list": f"{part([])}.{BODY}.{SIGNATURE}",
    "a head that is not UTF-8": f"{part(bytes([255, 254]))}.{BODY}.{SIGNATURE}",
    "a deep head": f"{part(b'[' * 3000)}.{BODY}.{SIGNATURE}",
    "base64 that is none": f"{HEAD}.a.{SIGNATURE}",
    "a space": f"{HEAD} {BODY}",
    "far too long": "x" * 50_000,
    "padded": f"{GOOD}====",
}


@pytest.mark.parametrize("token", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_tokens_are_refused(token: str) -> None:
    """With the same answer as for every other one that does not hold."""
    refused(await asked(tokens(), token), 401)


@pytest.mark.parametrize("body", [b"[]", b"null", b"7", b"{", b"[" * 3000, b"\xff"], ids=repr)
async def test_a_signed_body_that_is_no_object_is_refused(body: bytes) -> None:
    """The issuer's slip is not our fault."""
    text = f"{part({'alg': 'HS256'})}.{part(body)}"
    token = f"{text}.{part(hmac.digest(private('HS256').encode(), text.encode(), 'sha256'))}"

    refused(await asked(tokens(), token), 401)


async def test_only_a_bearer_header_carries_a_token() -> None:
    """Not X-Api-Key, not the query, not a cookie, and not two headers at once."""
    token = mint()
    async with serving(tokens()) as client:
        for headers in ({"x-api-key": token}, {"cookie": f"token={token}"}):
            refused(await client.get("/v1/queues", **headers), 401)
        refused(await client.get(f"/v1/queues?access_token={token}"), 401)
        refused(await client.get("/v1/queues", authorization=f"Basic {token}"), 401)
        assert (await client.get("/v1/queues", authorization=f"bearer {token}")).status == 200


async def test_tokens_are_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither good ones nor bad ones, at any level."""
    bad = mint(exp=time.time() - 60)
    with caplog.at_level(logging.DEBUG):
        for token in (GOOD, bad, f"{GOOD}x"):
            await asked(tokens(), token)

    assert HEAD not in caplog.text
    assert bad.split(".")[2] not in caplog.text


# -- keys that are not usable ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "body"),
    [
        ("HS256", b"short"),
        ("HS256", pem("RS256")),
        ("RS256", b"no key at all, only words that are long enough"),
        ("RS256", pem("ES256")),
        ("ES256", pem("RS256")),
        ("EdDSA", pem("ES256")),
        ("RS256", b""),
        ("RS256", b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----"),
        ("RS256", b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----"),
        ("EdDSA", b"\xff\xfe"),
    ],
)
def test_a_key_that_is_not_for_the_algorithm_is_refused(
    algorithm: str, body: bytes, tmp_path: Path
) -> None:
    """At the start, not at the first token."""
    path = tmp_path / "key"
    path.write_bytes(body)

    with pytest.raises(ConfigError) as told:
        read_key(str(path), algorithm)

    assert told.value.field == "jwt_key"


# -- tokens that were verified a moment ago --------------------------------------------------------

SOMEBODY = Caller(name="x", tenant="acme", rights=frozenset())


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_verified_token_is_remembered_briefly() -> None:
    """So long a withdrawn key may still do, and no longer."""
    clock = Clock()
    recent = Recent(clock)
    recent.put("t", SOMEBODY, 9e9)

    assert recent.get("t") is SOMEBODY
    assert recent.get("u") is None
    clock.now += RECENT_S
    assert recent.get("t") is None
    assert len(recent) == 0


def test_a_token_is_never_remembered_past_its_end() -> None:
    """Not by an instant."""
    clock = Clock()
    recent = Recent(clock)
    recent.put("t", SOMEBODY, clock.now + 5)
    recent.put("over", SOMEBODY, clock.now)

    assert recent.get("over") is None
    clock.now += 4.9
    assert recent.get("t") is SOMEBODY
    clock.now += 0.1
    assert recent.get("t") is None


def test_only_so_many_are_remembered() -> None:
    """The oldest goes first."""
    recent = Recent(Clock())
    for number in range(RECENT_MAX + 10):
        recent.put(str(number), SOMEBODY, 9e9)

    assert len(recent) == RECENT_MAX
    assert recent.get("0") is None


async def test_a_remembered_token_is_not_verified_again() -> None:
    """Its key is asked for once; of another token's caller nothing is taken over."""
    source = Counted(OneKey(Key(None, "HS256", public("HS256"))))
    async with serving(Tokens(source, rules())) as client:
        reader = {"authorization": f"Bearer {mint(scope='read')}"}
        everybody = {"authorization": f"Bearer {mint(scope=EVERY_RIGHT)}"}
        for _ in range(3):
            assert (await client.post("/v1/claim", **reader)).status == 403
            assert (await client.post("/v1/claim", **everybody)).status == 200

    assert source.calls == 2


class Counted:
    def __init__(self, inner: OneKey) -> None:
        self.inner, self.calls = inner, 0

    async def key(self, kid: str | None) -> Key:
        self.calls += 1
        return await self.inner.key(kid)
