"""`holdfast pause` and `holdfast resume`: stop and restart claims from a scope."""

from __future__ import annotations

import click

from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.scoping import Where, pause_words, scope_options, state_data
from holdfast.cli.show import print_json
from holdfast.cli.signing import signed, user
from holdfast.core.job import By
from holdfast.scopes import ScopeState, words


@click.command("pause")
@scope_options
@click.option("--reason", required=True, help="Reason of the pause, shown with the scope.")
@click.option("--author", help="Author of the pause. Default: the current user.")
@json_option
@common_options
@click.pass_obj
def pause(
    settings: Settings,
    /,
    *,
    where: Where,
    reason: str,
    author: str | None,
    as_json: bool,
) -> None:
    """Stop claims from a tenant, a queue or a group, or from all tenants. Running jobs continue.

    --platform pauses all tenants together: the whole store, a queue or a job type.
    """

    async def act() -> ScopeState:
        async with opened(settings) as store:
            return await where.handle(settings, store).pause(reason, author or user())

    _told(work(act()), as_json)


@click.command("resume")
@scope_options
@signed
@json_option
@common_options
@click.pass_obj
def resume(
    settings: Settings,
    /,
    *,
    where: Where,
    by: By,
    as_json: bool,
) -> None:
    """End a pause of a tenant, a queue or a group, or of all tenants together (--platform)."""

    async def act() -> ScopeState:
        async with opened(settings) as store:
            return await where.handle(settings, store).resume(by.author, by.reason)

    _told(work(act()), as_json)


def _told(state: ScopeState, as_json: bool) -> None:
    if as_json:
        print_json(state_data(state))
        return
    paused = state.settings.paused
    click.echo(f"{words(state.scope)}: {'not paused' if paused is None else pause_words(paused)}")
