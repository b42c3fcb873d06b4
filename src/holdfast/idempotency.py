"""The idempotency key that a job type derives from the arguments of its jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from string import Formatter
from typing import Any

import msgspec

from holdfast.core.codec import to_plain
from holdfast.core.errors import ConfigError, InvalidInput, did_you_mean

KeyOf = Callable[[Any], str | None]
"""From a job to its key. None: it has no key."""


def key_of(type: str, fields: Sequence[str], given: object) -> KeyOf | None:
    """The checked `key=` of a job type: a callable, or a text as `waveform:{track_id}`."""
    if given is None:
        return None
    if isinstance(given, str):
        return _Text(type, fields, given)
    if not callable(given):
        raise _wrong(f"of {type!r} must be a text with {{names}} of arguments, or a callable")
    if inspect.iscoroutinefunction(given):
        raise _wrong(f"of {type!r} is async; the callable must return the key at once")
    return _Call(type, given)


class _Call:
    """A callable of the app, whose answer is checked."""

    def __init__(self, type: str, call: Callable[[Any], object]) -> None:
        self._type = type
        self._call = call

    def __call__(self, job: Any) -> str | None:
        key = self._call(job)
        if key is None or isinstance(key, str):
            return key
        told = key.__class__.__name__
        why = f"the key= of job type {self._type!r} returned {told}, not a text or None"
        raise InvalidInput(field="key", why=why)


class _Text:
    """A text with names of arguments in braces. Only names: what needs more is a callable."""

    def __init__(self, type: str, fields: Sequence[str], text: str) -> None:
        self._type = type
        self._parts: list[tuple[str, str | None]] = []
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise _wrong(f"{text!r}: {error}") from None
        for literal, name, spec, conversion in parts:
            if name is not None and (spec or conversion or not name.isidentifier()):
                raise _wrong(f"{text!r}: braces take the name of an argument; use a callable")
            if name is not None and name not in fields:
                hint = did_you_mean(name, fields)
                raise _wrong(f"{text!r}: {type!r} has no argument {name!r}.{hint}")
            self._parts.append((literal, name))
        if not parts:
            raise _wrong("must not be empty")
        if fields and all(name is None for _, name in self._parts):
            one = f"{{{text if text in fields else fields[0]}}}"
            raise _wrong(
                f"{text!r} names no argument, so all jobs of {type!r} would be one; write {one!r}"
            )

    def __call__(self, job: Any) -> str:
        return "".join(
            literal if name is None else literal + self._told(name, getattr(job, name))
            for literal, name in self._parts
        )

    def _told(self, name: str, value: object) -> str:
        """The value as JSON has it, so that equal arguments give equal keys in every process."""
        if isinstance(value, str) and value.__class__ is str:
            return value
        try:
            plain = msgspec.to_builtins(value, enc_hook=to_plain)
        except Exception:  # A type that only the codec of the job knows.
            plain = None
        if isinstance(plain, str):
            return plain
        if isinstance(plain, int | float):
            return msgspec.json.encode(plain).decode()
        why = (
            f"argument {name!r} of {self._type!r} is {value.__class__.__name__}, which has no"
            " place in a text; use a callable as key="
        )
        raise InvalidInput(field="key", why=why)


def _wrong(why: str) -> ConfigError:
    return ConfigError(field="key", why=why)
