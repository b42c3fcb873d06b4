"""What a node does: a job, or a job with placeholders, with or without options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec

from holdfast.core.errors import InvalidInput, PayloadTooLarge, did_you_mean
from holdfast.core.journal import OnFailure
from holdfast.core.placeholder import Placeholder
from holdfast.typed import Job, JobFunction, JobType, Pending, Planned

Work: TypeAlias = Any

_HOW = {how.value: how for how in OnFailure}


class Each(msgspec.Struct, frozen=True):
    """What a map makes of each item."""

    name: str
    kind: type[Job[Any]] | JobType
    field: str
    """The argument that gets the item."""


def each_of(job_type: Any) -> Each:
    """What a map makes of a job type. The first argument gets the item."""
    if isinstance(job_type, Each):
        return job_type
    kind, name = kind_of(job_type), job_type.__name__
    fields = msgspec.structs.fields(kind)
    if not fields:
        raise InvalidInput(field="job_type", why=f"{name!r} takes no argument for the item")
    check_item(name, kind, fields[0].encode_name)
    return Each(name, kind, fields[0].encode_name)


def check_item(name: str, kind: type[Job[Any]], item: str) -> None:
    """Refuses a job type that needs more arguments than the item."""
    for field in msgspec.structs.fields(kind):
        if field.required and field.encode_name != item:
            why = f"{name!r} needs {field.name!r} besides the item: give it a default"
            raise InvalidInput(field="job_type", why=why)


def kind_of(job_type: Any) -> type[Job[Any]]:
    if isinstance(job_type, JobFunction):
        return job_type.kind
    if inspect.isclass(job_type) and issubclass(job_type, Job):
        return job_type
    why = f"must be a job type, not {type(job_type).__name__}"
    if isinstance(job_type, Job):
        why = "is a job; give its type, without calling it"
    raise InvalidInput(field="job_type", why=why)


def name_of(work: Work) -> str:
    """The name of its type, for people."""
    inner = work.job if isinstance(work, Planned) else work
    kind = inner.kind if isinstance(inner, Pending) else type(inner)
    return kind.name if isinstance(kind, JobType) else str(kind.__name__)


def how_of(given: OnFailure | str) -> OnFailure:
    try:
        return _HOW[given]
    except (KeyError, TypeError):
        hint = did_you_mean(str(given), OnFailure)
        why = f"must be fail, run or skip, got {given!r}.{hint}"
        raise InvalidInput(field="on_failure", why=why) from None


# -- placeholders ----------------------------------------------------------------------------------


def places_of(work: Work) -> Iterable[Placeholder]:
    inner = work.job if isinstance(work, Planned) else work
    return inner.places.values() if isinstance(inner, Pending) else ()


def moved_place(place: Placeholder, to: Callable[[Any], Any]) -> Placeholder:
    return Placeholder(place.how, [to(node) for node in place.nodes])


def moved(work: Work, to: Callable[[Any], Any]) -> Work:
    """The work with placeholders for other nodes."""
    if isinstance(work, Planned):
        return Planned(moved(work.job, to), work.options)
    if not isinstance(work, Pending):
        return work
    places = {name: moved_place(place, to) for name, place in work.places.items()}
    return Pending(work.kind, work.known, places)


# -- errors ----------------------------------------------------------------------------------------


@contextmanager
def of_node(name: str) -> Iterator[None]:
    """An error in the block names the node."""
    try:
        yield
    except InvalidInput as error:
        raise naming(name, error) from error


def naming(name: str, error: InvalidInput) -> InvalidInput:
    """The error, with the name of the node in it."""
    if type(error) in (InvalidInput, PayloadTooLarge):
        facts = {**error.facts, "field": f"node {name}: {error.facts.get('field')}"}
        return type(error)(**facts)
    return InvalidInput(field=f"node {name}", why=str(error))
