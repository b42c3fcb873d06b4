"""Rates: how many jobs may start in a time, and the token bucket that counts them. Pure."""

from __future__ import annotations

import re

import msgspec

from holdfast.core.bounds import RUNNING_CAP_MAX
from holdfast.core.check import check_whole
from holdfast.core.clock import SECOND, Micros
from holdfast.core.errors import InvalidInput


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many jobs may start in a time, and how many of them at once (`burst`)."""

    count: int
    per_us: Micros
    burst: int

    @property
    def price_us(self) -> Micros:
        """The time between two tokens, rounded up, so that a start is never early."""
        return -(-self.per_us // self.count)

    @property
    def words(self) -> str:
        """The rate as text, `100/s`, with the burst if that differs."""
        unit = next((unit for unit, per_us in _UNITS.items() if per_us == self.per_us), "?")
        burst = "" if self.burst == self.count else f" burst {self.burst}"
        return f"{self.count}/{unit}{burst}"

    def checked(self, field: str = "rate") -> Rate:
        """Returns itself. Raises InvalidInput, which names the field, if it is out of bounds."""
        check_whole(field, self.count, 1, RUNNING_CAP_MAX)
        check_whole(f"{field}.burst", self.burst, 1, RUNNING_CAP_MAX)
        if self.per_us not in _UNITS.values():
            raise InvalidInput(field=field, why=f"is per {self.per_us} us, must be per s, m, h, d")
        return self


_RATE = re.compile(r"\s*([0-9]{1,18})\s*/\s*([a-z]+)\s*")
SHOWN_MAX = 50
"""How many characters of an invalid value an error shows."""
_UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 24 * 3600 * SECOND}


def rate(text: object, burst: int | None = None, prefix: str = "") -> Rate:
    """`100/s`, `60/m`, `1000/h`, `5/d`; the burst is the count unless given. An error names the
    field with the prefix.
    """
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[2] not in _UNITS:
        why = f"is {repr(text)[:SHOWN_MAX]}, must be a number and a unit: 100/s, 60/m"
        raise InvalidInput(field=f"{prefix}rate", why=why)
    count = check_whole(f"{prefix}rate", int(found[1]), 1, RUNNING_CAP_MAX)
    whole = check_whole(f"{prefix}burst", count if burst is None else burst, 1, RUNNING_CAP_MAX)
    return Rate(count, _UNITS[found[2]], whole)


class Bucket(msgspec.Struct, frozen=True):
    """A token bucket, stored as the instant at which it is full again: no drift, no fractions."""

    full_at: Micros = 0

    def tokens(self, rate: Rate, now: Micros) -> int:
        """How many jobs may start now."""
        missing = max(0, self.full_at - now)
        return rate.burst - -(-missing // rate.price_us)

    def take(self, rate: Rate, number: int, now: Micros) -> Bucket:
        """The bucket after taking tokens."""
        return Bucket(max(self.full_at, now) + number * rate.price_us)

    def bounded(self, rate: Rate, now: Micros) -> Bucket:
        """The bucket under a new rate; at most empty, so that a raised rate applies from now."""
        return Bucket(min(self.full_at, now + rate.burst * rate.price_us))

    def next_at(self, rate: Rate, now: Micros) -> Micros:
        """When the next token is available; never early."""
        if self.tokens(rate, now) > 0:
            return now
        return self.full_at - (rate.burst - 1) * rate.price_us
