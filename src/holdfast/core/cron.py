"""When a schedule ticks: a cron text in a time zone, or an interval with a phase. Pure.

Instants are whole microseconds since 1970. The instants of a timing do not depend on where a
caller starts to read them, so that every process computes the same ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.core.bounds import CRON_MAX, DELAY_S_MAX, INSTANT_MAX, ZONE_MAX
from holdfast.core.check import check_name, check_seconds, check_whole
from holdfast.core.clock import SECOND, Micros, instant, micros, moment
from holdfast.core.errors import InvalidInput

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY_S_MIN = 1.0
FIELDS = 5
REPEATS_MAX = 100_000
"""How many instants in a row the library may give that are not later than the one before. It gives
those of one repeated hour when it starts inside of it.
"""
WINDOW: Micros = 3600 * SECOND
"""The first time in which `newest` looks for ticks. Each next one is four times as long."""


class Timing(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """When a schedule ticks: `cron` in a `zone`, or `every` so often, counted from 1970."""

    cron: str | None = None
    zone: str = "UTC"
    every_us: Micros | None = None
    phase_us: Micros = 0

    def checked(self) -> Timing:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        if (self.cron is None) == (self.every_us is None):
            raise InvalidInput(field="cron", why="give either a cron text or every=, not both")
        if self.every_us is not None:
            check_whole("every_us", self.every_us, micros(EVERY_S_MIN), micros(DELAY_S_MAX))
            if not 0 <= self.phase_us < self.every_us:
                most = self.every_us / SECOND
                why = f"is {self.phase_us / SECOND:g} s, must be less than every ({most:g} s)"
                raise InvalidInput(field="phase", why=why)
            if self.zone != "UTC":
                raise InvalidInput(field="zone", why="belongs to cron; every= counts from 1970")
            return self
        assert self.cron is not None
        if self.phase_us:
            raise InvalidInput(field="phase", why="belongs to every=; write minutes into the cron")
        check_cron(self.cron, self.zone)
        return self

    @property
    def words(self) -> str:
        """The timing as text: `0 6 * * mon-fri in Europe/Berlin`, `every 300 s, phase 17 s`."""
        if self.every_us is not None:
            phase = f", phase {self.phase_us / SECOND:g} s" if self.phase_us else ""
            return f"every {self.every_us / SECOND:g} s{phase}"
        return f"{self.cron} in {self.zone}"

    def after(self, at: Micros) -> Iterator[Micros]:
        """Its instants later than `at`, in order, up to the year 2200."""
        if self.every_us is None:
            yield from _cron_after(self.cron or "", self.zone, at)
            return
        found = (at - self.phase_us) // self.every_us * self.every_us + self.phase_us
        while (found := found + self.every_us) < INSTANT_MAX:
            if found >= 0:
                yield found

    def holds(self, at: Micros) -> bool:
        """Whether `at` is one of its instants."""
        return next(self.after(at - 1), None) == at

    def newest(self, first: Micros, last: Micros, most: int) -> tuple[list[Micros], bool]:
        """Its last instants from `first` to `last`, at most `most` in order, and whether there are
        earlier ones. Reads no more than it needs of a long time.
        """
        window = WINDOW if self.every_us is None else self.every_us * most
        while True:
            start = max(first, last - window)
            found: list[Micros] = []
            for at in self.after(start - 1):
                if at > last:
                    break
                found.append(at)
            if start == first or len(found) > most:
                more = len(found) > most
                return found[-most:], more
            window *= 4

    def gap(self, at: Micros, number: int = 20) -> Micros:
        """The shortest time between its next instants after `at`."""
        if self.every_us is not None:
            return self.every_us
        found = list(islice(self.after(at), number))
        pairs = pairwise(found)
        return min((after - before for before, after in pairs), default=INSTANT_MAX)


def timing(
    *,
    cron: str | None = None,
    zone: str | None = None,
    every: float | None = None,
    phase: float | None = None,
) -> Timing:
    """The timing of these arguments, in seconds. Raises InvalidInput, which names the wrong one."""
    if cron is not None and every is not None:
        raise InvalidInput(field="every", why="give either a cron text or every=, not both")
    if every is not None:
        length = micros(check_seconds("every", every, EVERY_S_MIN))
        if zone is not None:
            raise InvalidInput(field="zone", why="belongs to cron; every= counts from 1970")
        offset = 0 if phase is None else micros(check_seconds("phase", phase))
        return Timing(every_us=length, phase_us=offset).checked()
    if cron is None:
        raise InvalidInput(field="cron", why="is missing: give a cron text or every=")
    if phase is not None:
        raise InvalidInput(field="phase", why="belongs to every=; write minutes into the cron")
    return Timing(cron=cron, zone="UTC" if zone is None else zone).checked()


def looks_like_cron(text: str) -> bool:
    """Whether the text is meant as a cron text: names of schedules have no spaces and no @."""
    return text.startswith("@") or len(text.split()) > 1


def check_cron(text: object, zone: object) -> None:
    """Raises InvalidInput, which names `cron` or `zone`, unless they give instants."""
    check_name("cron", text, CRON_MAX)
    check_name("zone", zone, ZONE_MAX)
    assert isinstance(text, str)
    assert isinstance(zone, str)
    zone_of(zone)
    fields = _fields(text)
    try:
        # Read from a leap year: 29 February comes at least once in 50 years.
        CronSim(fields, datetime(2000, 1, 1, tzinfo=UTC)).__next__()
    except StopIteration:
        raise InvalidInput(field="cron", why=f"{text!r} never comes") from None
    except CronSimError as error:
        raise InvalidInput(field="cron", why=_explained(text, str(error))) from None
    except (AssertionError, TypeError, ValueError, OverflowError):
        raise InvalidInput(field="cron", why=f"{text!r} is not a cron text") from None


def _explained(text: str, fault: str) -> str:
    """What is wrong with a cron text. The library reports a day that no month has as a bad day."""
    field = fault.removeprefix("Bad ")
    days, months = text.split()[2:4]
    if field == "day-of-month" and months != "*" and days.replace(",", "").isdecimal():
        possible = all(1 <= int(day) <= 31 for day in days.split(",") if day)
        if possible:
            return f"{text!r} never comes: no such month has that day"
    return f"{text!r} has a wrong {field}"


def _fields(text: str) -> str:
    """The five fields, also of `@daily` and the like."""
    if text.startswith("@"):
        found = NAMED.get(text.lower())
        if found is None:
            known = ", ".join(NAMED)
            why = f"there is no {text!r}; known are {known}. For intervals use every=seconds"
            raise InvalidInput(field="cron", why=why)
        return found
    number = len(text.split())
    if number == FIELDS + 1:
        why = (
            f"{text!r} has six fields, must be five: libraries disagree whether seconds come first"
            " or last. For seconds use every="
        )
        raise InvalidInput(field="cron", why=why)
    if number != FIELDS:
        why = f"{text!r} has {number} fields, must be five: minute hour day month weekday"
        raise InvalidInput(field="cron", why=why)
    return text


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """The time zone. Raises InvalidInput if this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError.
        why = f"there is no time zone {name!r} here; names are like Europe/Berlin or UTC"
        raise InvalidInput(field="zone", why=why) from None


def _cron_after(text: str, zone: str, at: Micros) -> Iterator[Micros]:
    """The library reads local times, so inside a repeated hour it may start with instants that are
    over. They are left out, which also makes the result independent of the start.
    """
    start = moment(max(0, at) // SECOND * SECOND).astimezone(zone_of(zone))
    latest, repeats = at, 0
    for found in CronSim(_fields(text), start if zone != "UTC" else start.astimezone(UTC)):
        came = instant(found)
        if came >= INSTANT_MAX:
            return
        if came > latest:
            latest, repeats = came, 0
            yield came
        elif (repeats := repeats + 1) > REPEATS_MAX:
            return
