"""Signatures: what a receiver believes, and what it does not."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from holdfast.core.edge_bounds import WEBHOOK_BODY_MAX
from holdfast.core.errors import InvalidInput
from holdfast.webhooks import SignatureRefused, verify
from holdfast.webhooks.signing import SIGNATURE_HEADER, new_secret, signature

SECRET = "whsec_0123456789abcdef"
OTHER = "whsec_fedcba9876543210"
BODY = b'{"id":"delivery-1","kind":"completed"}'
NOW = 1_767_225_600


def signed(secrets: list[str], at: int = NOW, body: bytes = BODY) -> dict[str, str]:
    """The headers of a delivery."""
    return {SIGNATURE_HEADER: signature(secrets, at, body), "Holdfast-Attempt": "3"}


def test_a_signed_delivery_is_believed() -> None:
    """And told as it was sent."""
    found = verify(SECRET, signed([SECRET]), BODY, now=NOW + 10)

    assert (found.id, found.attempt, found.at) == ("delivery-1", 3, NOW)
    assert found.event == {"id": "delivery-1", "kind": "completed"}


def test_the_signature_is_plain_hmac() -> None:
    """So that receivers in other languages can check it: HMAC-SHA256 of `t.body`, in hex."""
    right = hmac.new(SECRET.encode(), f"{NOW}.".encode() + BODY, hashlib.sha256).hexdigest()

    assert signature([SECRET], NOW, BODY) == f"t={NOW},v1={right}"


def test_two_secrets_sign_during_a_rotation() -> None:
    """A receiver with either believes it, and one with both believes either."""
    both = signed([SECRET, OTHER])

    assert verify(SECRET, both, BODY, now=NOW).id == "delivery-1"
    assert verify(OTHER, both, BODY, now=NOW).id == "delivery-1"
    assert verify([OTHER, SECRET], signed([SECRET]), BODY, now=NOW).id == "delivery-1"


def test_names_of_headers_have_no_case() -> None:
    """Frameworks differ in how they give them."""
    headers = {name.upper(): value for name, value in signed([SECRET]).items()}

    assert verify(SECRET, headers, BODY, now=NOW).attempt == 3


RIGHT = signature([SECRET], NOW, BODY)
REFUSED: dict[str, tuple[dict[str, str], bytes, str]] = {
    "another secret": (signed([OTHER]), BODY, "no signature"),
    "another body": (signed([SECRET]), BODY + b" ", "no signature"),
    "another time": ({SIGNATURE_HEADER: RIGHT.replace(f"t={NOW}", f"t={NOW + 1}")}, BODY, "no si"),
    "too old": (signed([SECRET], NOW - 301), BODY, "301 s ago"),
    "from the future": (signed([SECRET], NOW + 301), BODY, "in the future"),
    "no header": ({}, BODY, "is missing"),
    "empty header": ({SIGNATURE_HEADER: ""}, BODY, "is missing"),
    "no time": ({SIGNATURE_HEADER: RIGHT.split(",")[1]}, BODY, "must be"),
    "two times": ({SIGNATURE_HEADER: f"t={NOW},{RIGHT}"}, BODY, "must be"),
    "no signature": ({SIGNATURE_HEADER: f"t={NOW}"}, BODY, "must be"),
    "upper case": ({SIGNATURE_HEADER: RIGHT.upper()}, BODY, "must be"),
    "a short signature": ({SIGNATURE_HEADER: RIGHT[:-1]}, BODY, "must be"),
    "another version": ({SIGNATURE_HEADER: RIGHT.replace("v1", "v0")}, BODY, "must be"),
    "a time in other digits": (
        {SIGNATURE_HEADER: RIGHT.replace("t=1", "t=\u0661")},
        BODY,
        "must be",
    ),
    "a negative time": ({SIGNATURE_HEADER: RIGHT.replace("t=", "t=-")}, BODY, "must be"),
    "a long header": ({SIGNATURE_HEADER: RIGHT + "," * 3000}, BODY, "too long"),
    "many signatures": ({SIGNATURE_HEADER: RIGHT + f",v1={'0' * 64}" * 20}, BODY, "must be"),
    "a large body": (signed([SECRET]), b"x" * (WEBHOOK_BODY_MAX + 1), "larger"),
    "no JSON": (signed([SECRET], NOW, b"x"), b"x", "no JSON object"),
    "no object": (signed([SECRET], NOW, b"[1]"), b"[1]", "no JSON object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused(name: str) -> None:
    """With words that say what is wrong, and never the secret."""
    headers, body, why = REFUSED[name]

    with pytest.raises(SignatureRefused, match=why) as refused:
        verify(SECRET, headers, body, now=NOW)

    assert SECRET not in str(refused.value) + repr(refused.value)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"secret": "short"}, "secret"),
        ({"secret": ""}, "secret"),
        ({"secret": []}, "secret"),
        ({"secret": [SECRET, OTHER, SECRET]}, "secret"),
        ({"secret": "sécret-sécret-sécret"}, "secret"),
        ({"window": 0}, "window"),
        ({"window": float("nan")}, "window"),
        ({"window": 10**9}, "window"),
        ({"body": BODY.decode()}, "body"),
    ],
)
def test_a_receiver_that_is_set_up_wrongly_is_told(arguments: Any, field: str) -> None:
    """An empty secret from a missing variable must not verify anything."""
    given = {"secret": SECRET, "headers": signed([SECRET]), "body": BODY, **arguments}

    with pytest.raises(InvalidInput) as refused:
        verify(**given, now=NOW)

    assert refused.value.field == field


def test_secrets_are_long_and_never_the_same() -> None:
    """And begin so that scanners for leaked secrets find them."""
    made = {new_secret() for _ in range(100)}

    assert len(made) == 100
    assert all(one.startswith("whsec_") and len(one) == 49 for one in made)
