"""`holdfast signal`: send a named value to a job."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.common import Settings, common_options, json_option, opened, tell, work
from holdfast.cli.show import print_json
from holdfast.cli.signing import signed
from holdfast.core.bounds import TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.codec import json_fault
from holdfast.core.errors import InvalidInput
from holdfast.core.job import By
from holdfast.core.journal import Signal


@click.command("signal")
@click.argument("id", metavar="JOB")
@click.argument("name")
@click.argument("value", metavar="[JSON]", default="null")
@click.option("--tenant", required=True, help="The tenant that owns the job.")
@signed
@json_option
@common_options
@click.pass_obj
def command(
    settings: Settings, /, *, id: str, name: str, value: str, tenant: str, by: By, as_json: bool
) -> None:
    """Send the value JSON (default: null) to a JOB, under a NAME that it awaits now or later.

    The first value of a name counts.
    """
    check_name("tenant", tenant, TENANT_MAX)
    stored = work(_send(settings, Signal(tenant, id, name, _checked(value)), by))
    if as_json:
        print_json({"id": id, "name": name, "stored": stored})
    elif stored:
        tell(settings, f"{id} has the signal {name}")
    else:
        tell(settings, f"{id} had a signal {name} already, which counts")


def _checked(value: str) -> bytes:
    """The value without spaces, if it is JSON."""
    body = value.encode("utf-8", "surrogateescape")
    if (fault := json_fault(body)) is not None:
        raise InvalidInput(field="value", why=fault)
    return bytes(msgspec.json.format(body, indent=-1))


async def _send(settings: Settings, signal: Signal, by: By) -> bool:
    async with opened(settings) as store:
        [answer] = await store.signal([signal], by=by)
        if answer.error is not None:
            raise answer.error
        return answer.stored
