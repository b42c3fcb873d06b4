"""The options that select jobs for a list, a replay or a purge, combined into one Selection."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from holdfast.cli.values import past
from holdfast.core.bounds import QUEUE_MAX, SELECT_MAX, TENANT_MAX, TYPE_MAX, within
from holdfast.core.check import check_name
from holdfast.core.job import Reason, State
from holdfast.store import Selection, Store
from holdfast.store_clock import StoreClock

F = TypeVar("F", bound=Callable[..., Any])

_MANY: dict[str, str] = {
    "queue": "queues",
    "type": "types",
    "state": "states",
    "tag": "tags",
    "group": "groups",
    "reason": "reasons",
}
"""The repeatable options, each with its field of the selection."""
_TIMES = ("since", "before", "failed_since", "failed_before")
_INSTANTS = ("created_from", "created_before", "failed_from", "failed_before")
Times = dict[str, int | None]


def filters(*, states: bool) -> Callable[[F], Callable[..., Any]]:
    """Adds the options. The command receives them as one argument, `select`."""

    def decorate(function: F) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **given: Any) -> Any:
            times = {name: given.pop(name) for name in _TIMES}
            mine = {name: given.pop(name) for name in (*_MANY, "tenant") if name in given}
            return function(*args, select=_selection(times=times, **mine), **given)

        for option in reversed(_options(states)):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _options(states: bool) -> list[Callable[[Any], Any]]:
    state = click.option(
        "--state",
        multiple=True,
        type=click.Choice([one.value for one in State]),
        help="Only jobs in this state. Repeatable.",
    )
    return [
        click.option("--tenant", help="Only jobs of this tenant. Default: all tenants."),
        click.option("--queue", multiple=True, help="Only jobs in this queue. Repeatable."),
        click.option("--type", multiple=True, help="Only jobs of this type. Repeatable."),
        *([state] if states else []),
        click.option(
            "--tag", multiple=True, help="Only jobs with this tag. Repeatable: with all of them."
        ),
        click.option("--group", multiple=True, help="Only jobs of this group. Repeatable."),
        click.option(
            "--reason",
            multiple=True,
            type=click.Choice([one.value for one in Reason], case_sensitive=False),
            help="Only jobs that failed for this reason. Repeatable.",
        ),
        click.option(
            "--since",
            type=past,
            metavar="WHEN",
            help="Enqueued at or after: 15m or 2h ago, or an instant.",
        ),
        click.option(
            "--before",
            type=past,
            metavar="WHEN",
            help="Enqueued before: 15m or 2h ago, or an instant.",
        ),
        click.option(
            "--failed-since",
            type=past,
            metavar="WHEN",
            help="Failed for good at or after this time.",
        ),
        click.option(
            "--failed-before", type=past, metavar="WHEN", help="Failed for good before this time."
        ),
    ]


def _selection(tenant: str | None, times: Times, **many: tuple[str, ...]) -> Selection:
    for name, values in many.items():
        within(name, len(values), SELECT_MAX)
    for name, most in (("queue", QUEUE_MAX), ("type", TYPE_MAX)):
        for value in many[name]:
            check_name(name, value, most)
    if tenant is not None:
        check_name("tenant", tenant, TENANT_MAX)
    return Selection(
        tenant=tenant,
        queues=many["queue"],
        types=many["type"],
        states=tuple(State(one) for one in many.get("state", ())),
        tags=many["tag"],
        groups=many["group"],
        reasons=tuple(Reason(one.upper()) for one in many["reason"]),
        created_from=times["since"],
        created_before=times["before"],
        failed_from=times["failed_since"],
        failed_before=times["failed_before"],
    )


async def dated(store: Store, select: Selection) -> Selection:
    """The selection with every relative time replaced by an instant of the store's clock. The clock
    of this host may be minutes off (P8).
    """
    times = {name: getattr(select, name) for name in _INSTANTS}
    lengths = {name: at for name, at in times.items() if at is not None and at < 0}
    if not lengths:
        return select
    now = await StoreClock(store).look()
    return msgspec.structs.replace(select, **{name: now + at for name, at in lengths.items()})


def narrows(select: Selection) -> bool:
    """Whether any filter was given."""
    return select != Selection(tenant=None)
