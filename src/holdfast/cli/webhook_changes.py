"""`holdfast webhooks`: the commands that change one.

Secrets come from files, because `ps` shows arguments.
"""

from __future__ import annotations

from typing import IO, Any

import click

from holdfast.cli.common import Settings, common_options, json_option, work
from holdfast.cli.dead import somebody_there
from holdfast.cli.show import print_json
from holdfast.cli.signing import signed, user
from holdfast.cli.values import length, names
from holdfast.cli.webhook_shown import acting, of_tenant, tell
from holdfast.core.edge_bounds import WEBHOOK_ATTEMPTS_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.job import By
from holdfast.webhooks.handle import WebhookHandle
from holdfast.webhooks.stored import WebhookState

SECRET_FILE_MAX = 1024
HEADERS_FILE_MAX = 64 * 1024
_secret = click.option(
    "--secret-file",
    type=click.File("r"),
    metavar="FILE",
    help="File with the secret; - is stdin. Default: a random secret, printed once.",
)


@click.command("set")
@click.argument("name")
@of_tenant
@click.option("--url", help="Where deliveries go: https://, or http://.")
@click.option("--kinds", type=names, metavar="A,B", help="Kinds of events.")
@click.option("--types", type=names, metavar="A,B", help="Only jobs of these types; '*' is all.")
@click.option("--queues", type=names, metavar="A,B", help="Only these queues; '*' is all.")
@click.option("--include", type=names, metavar="A,B", help="payload, result, error; '*' is none.")
@click.option("--attempts", type=click.IntRange(1, WEBHOOK_ATTEMPTS_MAX), help="Of one delivery.")
@click.option("--pause-after", type=length, metavar="LENGTH", help="Pause after failing so long.")
@click.option(
    "--headers-file",
    type=click.File("r"),
    metavar="FILE",
    help="File with headers to send too, one 'Name: value' per line; - is stdin.",
)
@_secret
@click.option("--expect", type=click.IntRange(0), help="Fail unless this is its version; 0: new.")
@signed
@json_option
@common_options
@click.pass_obj
def set_webhook(
    settings: Settings, /, *, name: str, tenant: str | None, by: By, as_json: bool, **given: Any
) -> None:
    """Make or change a webhook; what is not named stays."""
    expect, secret, headers = (given.pop(key) for key in ("expect", "secret_file", "headers_file"))
    changes = {option: value for option, value in given.items() if value is not None}
    if secret is not None:
        changes["secret"] = _secret_of(secret)
    if headers is not None:
        changes["headers"] = _headers_of(headers)

    async def act(handle: WebhookHandle) -> WebhookState:
        return await handle.set(expect=expect, by=by, **changes)

    tell(work(acting(settings, name, tenant, act)), "set", as_json)


def _secret_of(file: IO[str]) -> str:
    return file.read(SECRET_FILE_MAX).strip()


def _headers_of(file: IO[str]) -> dict[str, str]:
    """The headers of a file. Errors name the line and never show it."""
    found = {}
    for number, line in enumerate(file.read(HEADERS_FILE_MAX).splitlines(), 1):
        name, colon, value = line.partition(":")
        if line.strip() and not colon:
            raise InvalidInput(field="headers-file", why=f"line {number} is not 'Name: value'")
        if line.strip():
            found[name.strip()] = value.strip()
    return found


@click.command("pause")
@click.argument("name")
@click.argument("reason")
@of_tenant
@click.option("--author", help="Author of the pause. Default: the current user.")
@json_option
@common_options
@click.pass_obj
def pause(
    settings: Settings,
    /,
    *,
    name: str,
    reason: str,
    tenant: str | None,
    author: str | None,
    as_json: bool,
) -> None:
    """Stop its deliveries. Events wait until it is resumed."""

    async def act(handle: WebhookHandle) -> WebhookState:
        return await handle.pause(reason, author or user())

    tell(work(acting(settings, name, tenant, act)), "paused", as_json)


@click.command("resume")
@click.argument("name")
@of_tenant
@click.option("--skip", is_flag=True, help="Do not deliver what happened during the pause.")
@signed
@json_option
@common_options
@click.pass_obj
def resume(
    settings: Settings, /, *, name: str, tenant: str | None, skip: bool, by: By, as_json: bool
) -> None:
    """End a pause, and deliver what happened meanwhile."""

    async def act(handle: WebhookHandle) -> WebhookState:
        return await handle.resume(by.author, by.reason, skip=skip)

    tell(work(acting(settings, name, tenant, act)), "resumed", as_json)


@click.command("rotate")
@click.argument("name")
@of_tenant
@click.option(
    "--keep",
    type=length,
    default="1d",
    show_default=True,
    metavar="LENGTH",
    help="How long the secret before goes on signing; 0: not at all.",
)
@_secret
@signed
@json_option
@common_options
@click.pass_obj
def rotate(
    settings: Settings, /, *, name: str, tenant: str | None, by: By, as_json: bool, **given: Any
) -> None:
    """Replace its secret. The new one is printed once."""
    file = given["secret_file"]
    secret = None if file is None else _secret_of(file)

    async def act(handle: WebhookHandle) -> WebhookState:
        return await handle.rotate(keep=given["keep"], secret=secret, by=by)

    tell(work(acting(settings, name, tenant, act)), "rotated the secret of", as_json)


@click.command("test")
@click.argument("name")
@of_tenant
@signed
@json_option
@common_options
@click.pass_obj
def test(settings: Settings, name: str, tenant: str | None, by: By, as_json: bool) -> None:
    """Send an event of the kind `ping`. Prints the id of its delivery."""

    async def act(handle: WebhookHandle) -> str:
        return (await handle.test(by=by)).id

    id = work(acting(settings, name, tenant, act))
    if as_json:
        print_json({"id": id})
    else:
        click.echo(id)


@click.command("delete")
@click.argument("name")
@of_tenant
@signed
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@common_options
@click.pass_obj
def delete(
    settings: Settings, /, *, name: str, tenant: str | None, by: By, yes: bool, as_json: bool
) -> None:
    """Delete a webhook, its secret and the deliveries that wait."""
    if not yes:
        if not somebody_there():
            raise click.UsageError(f"webhook {name!r} would be deleted: confirm with --yes")
        click.confirm(f"Delete webhook {name!r}?", abort=True, err=True)

    async def act(handle: WebhookHandle) -> WebhookState:
        state = await handle.get()
        await handle.delete(by=by)
        return state

    tell(work(acting(settings, name, tenant, act)), "deleted", as_json)


COMMANDS = (set_webhook, pause, resume, rotate, test, delete)
