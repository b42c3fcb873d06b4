"""Options that name a scope, of a tenant or of all tenants together, and output of its settings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
import msgspec

from holdfast import operate
from holdfast.cli.common import Settings, load_app
from holdfast.cli.show import Plain, clean
from holdfast.core.rate import Rate
from holdfast.core.scope import Ceiling, GroupRules, Pause, Scope, ScopeKind, ScopeSettings
from holdfast.core.tiers import LimitRules
from holdfast.scopes import ScopeHandle, ScopeState, rate_text, words
from holdfast.store import Store

F = TypeVar("F", bound=Callable[..., Any])


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The scope that a command names."""

    tenant: str | None
    queue: str | None
    group: str | None
    type: str | None
    platform: bool

    def checked(self) -> Where:
        """Returns itself. Raises UsageError for options that exclude each other."""
        if self.platform == (self.tenant is not None):
            raise click.UsageError("name either a TENANT, or --platform for all tenants together")
        if self.group is not None and self.platform:
            raise click.UsageError("--group and --platform cannot be combined")
        if self.type is not None and not self.platform:
            raise click.UsageError("--type can be used only with --platform")
        for one in ("group", "type"):
            if self.queue is not None and getattr(self, one) is not None:
                raise click.UsageError(f"--queue and --{one} cannot be combined")
        return self

    @property
    def whole_platform(self) -> bool:
        """Whether it is all tenants together, without a queue or a type."""
        return self.platform and self.queue is None and self.type is None

    def handle(self, settings: Settings, store: Store) -> ScopeHandle:
        """A handle for the scope. Types are known by the app, if there is one, and by the store."""
        if self.tenant is not None:
            return operate.scope(store, self.tenant, queue=self.queue, group=self.group)
        if self.type is not None:
            app = None if settings.app is None else load_app(settings.app)
            return operate.platform(store, None if app is None else app.registry).type(self.type)
        top = operate.platform(store)
        return top if self.queue is None else top.queue(self.queue)


def scope_options(function: F) -> Callable[..., Any]:
    """The argument TENANT with `--queue` or `--group`, or `--platform` with `--queue` or `--type`.
    The command receives them as one argument, `where`.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **given: Any) -> Any:
        where = Where(**{name: given.pop(name) for name in Where.__struct_fields__}).checked()
        return function(*args, where=where, **given)

    options = (
        click.option("--platform", is_flag=True, help="Act on all tenants together."),
        click.option("--queue", help="Act on this queue, of the tenant or over all tenants."),
        click.option("--group", help="Act on this group of the tenant."),
        click.option("--type", help="Act on this job type over all tenants (--platform only)."),
    )
    found: Callable[..., Any] = wrapped
    for option in reversed(options):
        found = option(found)
    return click.argument("tenant", required=False)(found)


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
        **rate_data(settings.rate),
        "weight": settings.share,
        "tier": settings.tier,
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
    return {"max_running": rules.max_running, **rate_data(rules.rate), **ordered}


def _ceiling_data(ceiling: Ceiling) -> Plain:
    return {"max_running": ceiling.max_running, **rate_data(ceiling.rate)}


def rate_data(rate: Rate | None) -> Plain:
    """A rate and its burst, as plain data for JSON."""
    if rate is None:
        return {"rate": None, "burst": None}
    return {"rate": rate_text(rate).partition(" ")[0], "burst": rate.burst}


# -- words -----------------------------------------------------------------------------------------


def settings_words(settings: ScopeSettings) -> str:
    """The settings as text for one table cell, the pause first."""
    return ", ".join(_words(settings))


def pause_words(pause: Pause) -> str:
    return f"paused by {clean(pause.author)}: {clean(pause.reason)}"


def print_pauses_of_all(states: dict[Scope, ScopeState]) -> None:
    """Prints a line for each pause over all tenants: no row of a table of tenants or queues has it,
    although it stops their jobs.
    """
    for scope, state in states.items():
        if scope.of_platform and state.settings.paused is not None:
            click.echo(f"{clean(words(scope))}: {pause_words(state.settings.paused)}")


def _words(settings: ScopeSettings) -> Iterator[str]:
    if settings.paused is not None:
        yield pause_words(settings.paused)
    if settings.max_running is not None:
        yield f"max {settings.max_running} running"
    if settings.rate is not None:
        yield rate_text(settings.rate)
    if settings.weight is not None:
        yield f"weight {settings.weight}"
    if settings.tier is not None:
        yield f"tier {clean(settings.tier)}"
    if settings.max_queued is not None:
        yield f"max {settings.max_queued} queued"
    if settings.max_bytes is not None:
        yield f"max {settings.max_bytes} bytes"
    if settings.ordered is not None:
        yield "ordered" if settings.ordered else "not ordered"
    if settings.slots_count:
        yield "held slots count"
    if settings.groups is not None:
        yield f"groups: {rules_words(settings.groups)}"
    if settings.ceiling is not None:
        yield f"ceiling: {rules_words(settings.ceiling)}"


def rules_words(rules: GroupRules | Ceiling | LimitRules) -> str:
    """A limit and a rate as text."""
    found = []
    if rules.max_running is not None:
        found.append(f"max {rules.max_running} running")
    if rules.rate is not None:
        found.append(rate_text(rules.rate))
    if isinstance(rules, GroupRules) and rules.ordered is not None:
        found.append("ordered" if rules.ordered else "not ordered")
    return " and ".join(found) or "nothing"


def value_text(value: Any) -> Any:
    """A value that counts for a scope: numbers as they are, rates and rules as text."""
    if isinstance(value, Rate):
        return rate_text(value)
    return rules_words(value) if isinstance(value, GroupRules) else value


def settings_of(
    states: dict[Scope, ScopeState], tenant: str, kind: ScopeKind, part: str = ""
) -> ScopeSettings | None:
    """The settings of one listed scope; None if there are none."""
    state = states.get(Scope(tenant, kind, part))
    return None if state is None else state.settings
