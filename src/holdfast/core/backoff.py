"""How long a loop waits before its next try: longer after each failure, up to a limit."""

from __future__ import annotations

from collections.abc import Callable


class Delays:
    """The delays of one loop: `first_s`, then each `factor` times the one before, at most `most_s`.

    With `chance` (a source of numbers in [0, 1), such as `random.random`) each delay is multiplied
    by a number between 0.5 and 1.5, so that the clients of a server that came back do not all call
    it at the same instant.
    """

    __slots__ = ("_chance", "_factor", "_first_s", "_most_s", "_next_s")

    def __init__(
        self,
        first_s: float,
        most_s: float,
        *,
        factor: float = 2.0,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self._first_s = self._next_s = min(first_s, most_s)
        self._most_s = most_s
        self._factor = factor
        self._chance = chance

    def next_s(self) -> float:
        """The seconds to wait now; the next call gives more."""
        delay_s = self._next_s
        self._next_s = min(delay_s * self._factor, self._most_s)
        return delay_s if self._chance is None else delay_s * (0.5 + self._chance())

    def reset(self) -> None:
        """A try succeeded: the next delay is the first one again."""
        self._next_s = self._first_s
