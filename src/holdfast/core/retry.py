"""Retry policies: when a failed job runs again.

A policy is data stored with the job.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.core.bounds import DELAY_S_MAX, DELAYS_MAX
from holdfast.core.clock import Micros, micros
from holdfast.core.errors import ConfigError, did_you_mean


class Backoff(StrEnum):
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"
    LIST = "list"


class Jitter(StrEnum):
    NONE = "none"
    EQUAL = "equal"
    """Half of the delay is fixed, half is random."""
    FULL = "full"
    """A random time between zero and the whole delay."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long to wait before the next attempt.

    It is plain data that every process and language reads in the same way. Its defaults are part of
    the stored format, as those of `job.Rules`, and never change.
    """

    kind: Backoff = Backoff.EXPONENTIAL
    base_s: float = 5.0
    factor: float = 2.0
    cap_s: float = 300.0
    jitter: Jitter = Jitter.FULL
    delays_s: tuple[float, ...] = ()
    """For `list`: the delay after attempt 1, 2, ...; the last one repeats."""

    def delay(self, attempt: int, chance: float) -> Micros:
        """The delay after the given failed attempt (1, 2, ...).

        `chance` in [0, 1) is the randomness for the jitter.
        """
        whole = self._whole(attempt)
        if self.jitter is Jitter.FULL:
            whole *= chance
        elif self.jitter is Jitter.EQUAL:
            whole = whole / 2 + whole / 2 * chance
        return micros(whole)

    def _whole(self, attempt: int) -> float:
        if self.kind is Backoff.LIST:
            return self.delays_s[min(attempt, len(self.delays_s)) - 1]
        if self.kind is Backoff.FIXED:
            delay = self.base_s
        elif self.kind is Backoff.LINEAR:
            delay = self.base_s * attempt
        else:
            delay = self._exponential(attempt)
        return min(delay, self.cap_s)

    def _exponential(self, attempt: int) -> float:
        try:
            return self.base_s * self.factor ** (attempt - 1)
        except OverflowError:
            return self.cap_s

    def checked(self) -> RetryPolicy:
        """The policy with its words parsed. Raises ConfigError, which names the invalid field."""
        try:
            policy = msgspec.convert(msgspec.to_builtins(self), RetryPolicy)
        except msgspec.ValidationError as error:
            raise ConfigError(field="retry", why=str(error)) from None
        policy._check()
        return policy

    def _check(self) -> None:
        """Checks every field, because all are stored, even those that this kind does not use."""
        listed = self.kind is Backoff.LIST
        if not listed <= len(self.delays_s) <= DELAYS_MAX:
            why = f"needs {int(listed)} to {DELAYS_MAX} delays"
            raise ConfigError(field="retry.delays_s", why=why)
        if not all(0 <= delay <= DELAY_S_MAX for delay in self.delays_s):
            raise ConfigError(field="retry.delays_s", why="a delay is negative or too long")
        if not 0 <= self.base_s <= DELAY_S_MAX:
            raise ConfigError(field="retry.base_s", why="must be 0 seconds or more")
        if not (0 if listed else self.base_s) <= self.cap_s <= DELAY_S_MAX:
            raise ConfigError(field="retry.cap_s", why="must not be less than base_s")
        if not 1 <= self.factor <= 1000:
            raise ConfigError(field="retry.factor", why="must be between 1 and 1000")


PRESETS = {
    "default": RetryPolicy(),
    "patient": RetryPolicy(kind=Backoff.LIST, delays_s=(60.0, 300.0, 1500.0), jitter=Jitter.NONE),
    "brisk": RetryPolicy(kind=Backoff.LIST, delays_s=(0.2, 0.4, 0.8), jitter=Jitter.NONE),
}


def policy(value: RetryPolicy | str) -> RetryPolicy:
    """The policy, given as a RetryPolicy or as the name of a preset."""
    if isinstance(value, RetryPolicy):
        return value.checked()
    try:
        return PRESETS[value]
    except (KeyError, TypeError):
        hint = did_you_mean(str(value), PRESETS)
        raise ConfigError(
            field="retry", why=f"no preset {value!r} (known: {', '.join(PRESETS)}).{hint}"
        ) from None
