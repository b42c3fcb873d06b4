"""Readers of options in store URLs, shared by the stores. Errors name the option."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.errors import ConfigError, did_you_mean

SECONDS_MAX = 3600.0


def switch(name: str, value: str) -> bool:
    return one_of("on", "off")(name, value) == "on"


def one_of(*allowed: str) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        if value not in allowed:
            hint = did_you_mean(value, allowed)
            why = f"{name} is {value!r}, must be {' or '.join(allowed)}.{hint}"
            raise ConfigError(field="store", why=why)
        return value

    return read


def seconds(least: float, most: float = SECONDS_MAX) -> Callable[[str, str], float]:
    """A length within these bounds, both of them allowed."""

    def read(name: str, value: str) -> float:
        length = _length(value)
        if length is None or not least <= length <= most:
            why = f"{name} is {value!r}, must be seconds from {least:g} to {most:g}"
            raise ConfigError(field="store", why=why)
        return length

    return read


def seconds_above_zero(name: str, value: str) -> float:
    length = _length(value)
    if length is None or not 0 < length <= SECONDS_MAX:
        why = f"{name} is {value!r}, must be seconds above 0, up to {SECONDS_MAX:g}"
        raise ConfigError(field="store", why=why)
    return length


def _length(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
