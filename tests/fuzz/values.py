"""Values that break what trusts its input: numbers at every edge, traps of unicode, deep nests."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

NUMBERS: tuple[Any, ...] = (
    *(0, -0.0, -1, 1, 0.1, 1e-320, 5e-324, 1e308, -1e308, 2**31 - 1, 2**31, -(2**31) - 1),
    *(2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**25, 10**400),
    *(float("nan"), float("inf"), float("-inf"), 99999999999999999999999.5, 253402300800),
)
"""JSON has no NaN, but parsers and msgpack do."""
TEXTS = (
    *("", " ", "\x00", "a\x00b", "\n", "\r\nX-Evil: 1", "\t", "\x1b[2J", "\x7f", "\u200b"),
    *("\ufeff", "\u202egnp.exe", "\u0301" * 200, "e\u0301", "\u00e9", "\u212b", "\ud800"),
    *("\udfff", "\ufffe", "\U0001f4a9" * 64, "\U0010ffff" * 128, "\u00df" * 128, "\u0130"),
    *("null", "NaN", "Infinity", "true", "0", "-1", "1e999", "0x10", "../../etc/passwd", "%00"),
    *("%2e%2e%2f", "a/b", "a:b", "{}", "{id}", "*", "%", "_", "'; DROP TABLE jobs; --", '"', "\\"),
    *("$1", "${x}", "<script>", "{{7*7}}", "9" * 25, "9" * 5000, "a" * 129, "a" * 769),
    *("a" * 70_000, "scope/tenant/9999999:x/", "type/x", "scope/tenant/1:", "upkeep", "worker/"),
    *("slot/queue/3:abc/99999999999999999999:x", "1:x", "nonce.1", "nonce." + "9" * 25, "nonce.-1"),
)
BODIES = (
    *(b"", b"null", b"{", b"}", b'"', b"NaN", b"[1e999]", b"\xff", b"\x00", b'{"a": 1}, {"b": 2}'),
    *(b"1" * 400, b"[" * 900 + b"]" * 900, b'{"a":' * 300 + b"1" + b"}" * 300, b'"\\ud800"'),
    *(
        b'{"max_running": 0}',
        b'{"rate": {"count": 1, "per_us": 0, "burst": 1}}',
        b'{"weight": 1e9}',
    ),
)
"""Payloads, results and settings that are none, or not what they seem."""
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": ""}, {"__proto__": 1}, [None] * 50)


def nested(depth: int, rng: random.Random) -> Any:
    """Lists in objects in lists, so deep."""
    value: Any = copy.deepcopy(rng.choice(OTHERS))
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def hostile(rng: random.Random) -> Any:
    """Any of them."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(NUMBERS)
    if kind < 0.8:
        return rng.choice(TEXTS)
    if kind < 0.97:
        return copy.deepcopy(rng.choice(OTHERS))  # What is made of it may be spoiled again.
    return nested(rng.choice((3, 60, 200)), rng)


Place = tuple[Any, Any]
"""A list or an object, and where in it a value stands."""


def spoiled(value: Any, rng: random.Random) -> Any:
    """The value with one to three places of it replaced, left out, added to or repeated.

    Most replacements are of the same type: what is of another is refused before it can do harm.
    """
    changed = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(changed))
        if not places:
            return hostile(rng)
        _spoil(*rng.choice(places), rng)
    return changed if rng.random() < 0.97 else hostile(rng)


def _places(value: Any) -> Iterator[Place]:
    """Every place of a value, however deep."""
    if not isinstance(value, dict | list):
        return
    for name in value if isinstance(value, dict) else range(len(value)):
        yield value, name
        yield from _places(value[name])


def _spoil(inside: Any, name: Any, rng: random.Random) -> None:
    kind, old = rng.random(), inside[name]
    if kind < 0.08:
        del inside[name]
    elif kind < 0.14 and isinstance(inside, dict):
        inside[rng.choice(TEXTS)] = hostile(rng)
    elif kind < 0.14:
        inside[:] = inside * rng.choice((2, 40))
    elif kind < 0.3:
        inside[name] = hostile(rng)
    else:
        inside[name] = alike(old, rng)


def alike(old: Any, rng: random.Random) -> Any:
    """A hostile value of the same type."""
    if isinstance(old, bool) or old is None:
        return rng.choice((True, False, None))
    if isinstance(old, int | float):
        return rng.choice(NUMBERS)
    if isinstance(old, str):
        return rng.choice(TEXTS)
    if isinstance(old, bytes):
        return rng.choice(BODIES)
    return hostile(rng)


def torn(body: bytes, rng: random.Random) -> bytes:
    """The bytes of a body, damaged: cut, flipped, doubled, or wrapped a thousand times."""
    kind = rng.random()
    if kind < 0.3:
        return body[: rng.randrange(len(body) + 1)]
    if kind < 0.6 and body:
        place = rng.randrange(len(body))
        return body[:place] + bytes([rng.randrange(256)]) + body[place + 1 :]
    if kind < 0.8:
        return body + body
    if kind < 0.9:
        return b"[" * rng.choice((100, 20_000)) + body
    return rng.choice(
        (b"\xff\xfe", b"\x91" * 20_000, b"\xdd\xff\xff\xff\xff", b"\xc1", b"\x80" * 9)
    )
