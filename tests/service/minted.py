"""Tokens and keys for the tests of authentication: an issuer that can also lie."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms
from tests.service.asgi import Answer, Client

from holdfast.config import Config
from holdfast.service.app import application
from holdfast.service.auth.claims import ALL_TENANTS, TENANT_CLAIMS, TENANT_PATTERN
from holdfast.service.auth.jwks import Key, OneKey
from holdfast.service.auth.settings import AuthSettings
from holdfast.service.auth.tokens import TokenRules, Tokens
from holdfast.service.service import Auth, Service
from holdfast.stores import open_store

ISSUER = "https://issuer.test/"
AUDIENCE = "holdfast"
SECRET = "s3cret-s3cret-s3cret-s3cret-s3cret"
EVERY_RIGHT = "produce work read operate admin"


@cache
def private(algorithm: str, number: int = 0) -> Any:
    """A signing key; the same for the same number."""
    if algorithm == "HS256":
        return SECRET + str(number or "")
    if algorithm == "RS256":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def public(algorithm: str, number: int = 0) -> Any:
    key = private(algorithm, number)
    return key.encode() if algorithm == "HS256" else key.public_key()


def pem(algorithm: str, number: int = 0) -> bytes:
    """What an operator puts into the file of --jwt-key."""
    if algorithm == "HS256":
        return SECRET.encode()
    found: bytes = public(algorithm, number).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return found


def jwk(algorithm: str, kid: str | None, number: int = 0, **more: Any) -> dict[str, Any]:
    """The public key as an issuer publishes it."""
    told = json.loads(get_default_algorithms()[algorithm].to_jwk(public(algorithm, number)))
    told.pop("key_ops", None)
    return {**told, **({} if kid is None else {"kid": kid}), "use": "sig", **more}


def claims(**more: Any) -> dict[str, Any]:
    """Those of a good token, for acme if none names another; what is None is left out."""
    now = time.time()
    usual = {"iss": ISSUER, "aud": AUDIENCE, "exp": now + 600, "sub": "acme", "scope": EVERY_RIGHT}
    if more.keys().isdisjoint({*TENANT_CLAIMS, ALL_TENANTS}):
        usual["tid"] = "acme"
    return {name: value for name, value in {**usual, **more}.items() if value is not None}


def mint(algorithm: str = "HS256", kid: str | None = None, number: int = 0, **more: Any) -> str:
    """A signed token."""
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(claims(**more), private(algorithm, number), algorithm, headers=headers)


def rules(**more: Any) -> TokenRules:
    chosen = AuthSettings(tenant_pattern=more.pop("tenant_pattern", TENANT_PATTERN))
    usual = {"issuer": ISSUER, "audience": (AUDIENCE,), "leeway_s": 0.0}
    return TokenRules(**{**usual, **more}, tenant_pattern=chosen.pattern())


def tokens(algorithm: str = "HS256", **more: Any) -> Tokens:
    """Mode jwt with one key."""
    return Tokens(OneKey(Key(None, algorithm, public(algorithm))), rules(**more))


@asynccontextmanager
async def serving(auth: Auth) -> AsyncIterator[Client]:
    """A service on a memory store that asks `auth` who calls."""
    service = Service(open_store("memory://"), auth, config=Config(blobs="memory://"))
    await service.store.open()
    try:
        yield Client(application(service, owns_store=False))
    finally:
        service.close()
        await service.store.close()


async def asked(auth: Auth, token: str | None, **headers: str) -> Answer:
    """What a call for the tenant's queues gets with this token."""
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    async with serving(auth) as client:
        return await client.get("/v1/queues", **headers)


def refused(answer: Answer, status: int) -> str:
    """Checks that it is a refusal of the one shape; gives its words."""
    code = {401: "UNAUTHENTICATED", 403: "FORBIDDEN"}[status]
    assert (answer.status, answer.json["code"]) == (status, code), answer
    assert answer.headers["content-type"] == "application/problem+json"
    challenge = answer.headers.get("www-authenticate", "")
    assert challenge.startswith("Bearer") == (status == 401)
    return str(answer.json["detail"])


def bearer(**claims: Any) -> str:
    """The header of a token with these claims."""
    return f"Bearer {mint(**claims)}"
