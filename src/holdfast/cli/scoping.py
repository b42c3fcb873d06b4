"""Options that name a scope (a tenant, or a queue or group of it), and output of its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from holdfast.cli.show import Plain, clean
from holdfast.core.scope import Ceiling, GroupRules, Pause, Rate, Scope, ScopeKind, ScopeSettings
from holdfast.scopes import ScopeState, rate_text

F = TypeVar("F", bound=Callable[..., Any])


def scope_options(function: F) -> F:
    """The argument TENANT, and `--queue` or `--group` inside it."""
    group = click.option("--group", help="Act on this group of the tenant.")
    queue = click.option("--queue", help="Act on this queue of the tenant.")
    return click.argument("tenant")(queue(group(function)))


def one_of(queue: str | None, group: str | None) -> None:
    if queue is not None and group is not None:
        raise click.UsageError("--queue and --group cannot be combined")


# -- plain data ------------------------------------------------------------------------------------


def state_data(state: ScopeState) -> Plain:
    """A scope with its settings, as plain data for JSON."""
    return {**scope_data(state.scope), "version": state.version, **settings_data(state.settings)}


def scope_data(scope: Scope) -> Plain:
    return {"tenant": scope.tenant, "kind": scope.kind.value, "name": scope.part or scope.tenant}


def settings_data(settings: ScopeSettings) -> Plain:
    groups, ceiling = settings.groups, settings.ceiling
    return {
        "max_running": settings.max_running,
        **_rate_data(settings.rate),
        "weight": settings.weight,
        "max_queued": settings.max_queued,
        "max_bytes": settings.max_bytes,
        "ordered": settings.ordered,
        "slots_count": settings.slots_count,
        "groups": None if groups is None else _rules_data(groups),
        "ceiling": None if ceiling is None else _ceiling_data(ceiling),
        "paused": pause_data(settings.paused),
    }


def pause_data(pause: Pause | None) -> Plain | None:
    if pause is None:
        return None
    return {"reason": pause.reason, "author": pause.author, "platform": pause.platform}


def _rules_data(rules: GroupRules) -> Plain:
    ordered = {"ordered": rules.ordered}
    return {"max_running": rules.max_running, **_rate_data(rules.rate), **ordered}


def _ceiling_data(ceiling: Ceiling) -> Plain:
    return {"max_running": ceiling.max_running, **_rate_data(ceiling.rate)}


def _rate_data(rate: Rate | None) -> Plain:
    if rate is None:
        return {"rate": None, "burst": None}
    return {"rate": rate_text(rate).partition(" ")[0], "burst": rate.burst}


# -- words -----------------------------------------------------------------------------------------


def settings_words(settings: ScopeSettings) -> str:
    """The settings as text for one table cell, the pause first."""
    return ", ".join(_words(settings))


def pause_words(pause: Pause) -> str:
    return f"paused by {clean(pause.author)}: {clean(pause.reason)}"


def _words(settings: ScopeSettings) -> Iterator[str]:
    if settings.paused is not None:
        yield pause_words(settings.paused)
    if settings.max_running is not None:
        yield f"max {settings.max_running} running"
    if settings.rate is not None:
        yield rate_text(settings.rate)
    if settings.weight != 1:
        yield f"weight {settings.weight}"
    if settings.max_queued is not None:
        yield f"max {settings.max_queued} queued"
    if settings.max_bytes is not None:
        yield f"max {settings.max_bytes} bytes"
    if settings.ordered is not None:
        yield "ordered" if settings.ordered else "not ordered"
    if settings.slots_count:
        yield "held slots count"
    if settings.groups is not None:
        yield f"groups: {_rules_words(settings.groups)}"
    if settings.ceiling is not None:
        yield f"ceiling: {_rules_words(settings.ceiling)}"


def _rules_words(rules: GroupRules | Ceiling) -> str:
    found = []
    if rules.max_running is not None:
        found.append(f"max {rules.max_running} running")
    if rules.rate is not None:
        found.append(rate_text(rules.rate))
    if isinstance(rules, GroupRules) and rules.ordered is not None:
        found.append("ordered" if rules.ordered else "not ordered")
    return " and ".join(found) or "nothing"


def settings_of(
    states: dict[Scope, ScopeState], tenant: str, kind: ScopeKind, part: str = ""
) -> ScopeSettings | None:
    """The settings of one listed scope; None if there are none."""
    state = states.get(Scope(tenant, kind, part))
    return None if state is None else state.settings
