"""`holdfast pause` and `holdfast resume`: stop and restart claims from a scope."""

from __future__ import annotations

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.scoping import one_of, pause_words, scope_options, state_data
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
    tenant: str,
    queue: str | None,
    group: str | None,
    reason: str,
    author: str | None,
    as_json: bool,
) -> None:
    """Stop claims from a tenant, a queue or a group. Running jobs continue."""
    one_of(queue, group)

    async def act() -> ScopeState:
        async with opened(settings) as store:
            handle = operate.scope(store, tenant, queue=queue, group=group)
            return await handle.pause(reason, author or user())

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
    tenant: str,
    queue: str | None,
    group: str | None,
    by: By,
    as_json: bool,
) -> None:
    """End a pause of a tenant, a queue or a group."""
    one_of(queue, group)

    async def act() -> ScopeState:
        async with opened(settings) as store:
            handle = operate.scope(store, tenant, queue=queue, group=group)
            return await handle.resume(by.author, by.reason)

    _told(work(act()), as_json)


def _told(state: ScopeState, as_json: bool) -> None:
    if as_json:
        print_json(state_data(state))
        return
    paused = state.settings.paused
    click.echo(f"{words(state.scope)}: {'not paused' if paused is None else pause_words(paused)}")
