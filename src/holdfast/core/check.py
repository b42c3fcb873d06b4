"""Checks of names and numbers from outside: each returns the value or raises InvalidInput."""

from __future__ import annotations

import re

from holdfast.core.bounds import DELAY_S_MAX, NAME_BYTES_MAX, NONCE_MAX, TOKEN_MAX
from holdfast.core.errors import InvalidInput


def check_name(field: str, value: object, most: int) -> str:
    """The value if it is a valid name: text, not empty, not too long, printable, not padded."""
    if not isinstance(value, str):
        raise InvalidInput(field=field, why=f"must be text, not {type(value).__name__}")
    if not value:
        raise InvalidInput(field=field, why="must not be empty")
    if len(value) > most:
        raise InvalidInput(field=field, why=f"has {len(value)} characters, at most {most}")
    if not value.isprintable() or value != value.strip():
        raise InvalidInput(field=field, why="has control characters, or spaces at its ends")
    if not value.isascii() and (size := len(value.encode())) > NAME_BYTES_MAX:
        raise InvalidInput(field=field, why=f"has {size} bytes, at most {NAME_BYTES_MAX}")
    return value


OWN = "holdfast."
"""Types and queues with this prefix are for the library alone."""
RESERVED = f"names that begin with {OWN!r} are reserved for the library"


def is_reserved(name: str) -> bool:
    """Whether only the library may give this name to a type or a queue."""
    return name.startswith(OWN)


def check_free(field: str, name: str) -> str:
    """The name, unless it is reserved."""
    if is_reserved(name):
        raise InvalidInput(field=field, why=RESERVED)
    return name


_NONCE = re.compile(r"[0-9A-Za-z_-]+\Z")
_SEQUENCE = re.compile(r"\.([0-9]*)\Z", re.ASCII)


def check_nonce(field: str, value: object) -> str:
    """The value if it is a valid nonce of a claim: ASCII letters and digits, `-` and `_`.

    Other characters separate the nonce from what follows: a dot in a token, others in stores.
    """
    if isinstance(value, str) and len(value) <= NONCE_MAX and _NONCE.match(value) is not None:
        return value
    check_name(field, value, NONCE_MAX)
    raise InvalidInput(field=field, why="may contain only letters, digits, - and _")


def check_token(field: str, value: object) -> str:
    """The value if it has the form of a token. A sequence that no job can have is refused here. The
    store refuses other invalid tokens, as it does that of a lost lease.
    """
    token = check_name(field, value, TOKEN_MAX)
    found = _SEQUENCE.search(token)
    if found is not None and (len(found[1]) > 19 or int(found[1] or 0) >= 2**63):
        raise InvalidInput(field=field, why="is not a token of a claim")
    return token


def check_whole(field: str, value: object, least: int, most: int) -> int:
    """The value if it is an integer within bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(field=field, why=f"must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidInput(field=field, why=f"is {value}, must be {least} to {most}")
    return value


def check_seconds(
    field: str, value: object, least: float = 0.0, most: float = DELAY_S_MAX
) -> float:
    """The value if it is a finite duration within bounds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInput(field=field, why=f"must be seconds, not {type(value).__name__}")
    if not least <= value <= most:  # also refuses NaN
        raise InvalidInput(field=field, why=f"is {value} s, must be {least:g} to {most:g} s")
    return float(value)
