"""`holdfast enqueue`: enqueue one job, or one job for each line of stdin."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import count, islice
from typing import IO, Any, NamedTuple

import click
import msgspec

from holdfast.app import App
from holdfast.cli.common import (
    Settings,
    chosen_app,
    chosen_store,
    chosen_tenant,
    common_options,
    json_option,
    tell,
    tenant_option,
    work,
)
from holdfast.cli.show import print_json, progress
from holdfast.cli.values import length, moment
from holdfast.core.bounds import PAYLOAD_MAX
from holdfast.core.errors import InvalidInput, InvalidPayload, did_you_mean
from holdfast.core.job import NewJob
from holdfast.core.plural import many
from holdfast.enqueue import Options, checked
from holdfast.many import EnqueuedMany
from holdfast.operate import plan_raw
from holdfast.store import Store
from holdfast.types import Types

BATCH = 200
"""Number of jobs read from stdin before they are sent."""
LINE_BYTES_MAX = 4 * PAYLOAD_MAX
"""A line may be longer than the payload limit: its spaces and escapes do not count."""

Payload = dict[str, object]
Plan = Callable[[Payload], Awaitable[NewJob]]


@click.command("enqueue")
@click.argument("type")
@click.argument("payload", required=False, metavar="[JSON|-|@FILE]")
@tenant_option("The tenant (customer) that owns the job.")
@click.option("--queue", help="Queue. Default: the queue of the type.")
@click.option("--key", help="Idempotency key: return the unfinished job with this key, if any.")
@click.option(
    "--delay",
    type=length,
    metavar="LENGTH",
    help="Start no earlier than after this delay: 30, 200ms, 5m, 2h.",
)
@click.option(
    "--run-at",
    type=moment,
    metavar="INSTANT",
    help="Start no earlier than this instant: 2026-01-31T12:00:00Z.",
)
@click.option("--priority", type=int, help="Priority; higher runs first. Default: 0.")
@click.option("--group", help="Group of the job: for example a crawl, a user or a file.")
@click.option("--tag", "tags", multiple=True, help="Tag to search by. Repeatable.")
@click.option(
    "--ttl",
    type=length,
    metavar="LENGTH",
    help="Fail the job (EXPIRED) if it is still waiting after this time.",
)
@click.option("--id", help="Job id. A repeated call with the same id returns the same job.")
@click.option("--max-attempts", type=int, help="Maximum runs. Default: that of the type.")
@click.option("--lines", is_flag=True, help="Enqueue one job for each line of stdin.")
@json_option
@common_options
@click.pass_obj
def command(
    settings: Settings, /, type: str, payload: str | None, lines: bool, as_json: bool, **given: Any
) -> None:
    """Enqueue a job of TYPE with a JSON object as its payload.

    With --app the job type checks the payload. Without it, any JSON object is accepted, and the
    queue and rules are those that an app published for the type when it opened this store.
    Give the payload as text, as - for stdin, or as @FILE. Default: an empty object.
    """
    tenant = chosen_tenant(settings, given.pop("tenant"))
    options = checked({name: value for name, value in given.items() if value not in (None, ())})
    if lines:
        if payload is not None:
            raise click.UsageError(
                "--lines reads the payloads from stdin, so no payload argument is allowed"
            )
        if "id" in options or "key" in options:
            raise click.UsageError("--id and --key cannot be used with --lines")
        _told_many(work(_enqueue_lines(settings, type, tenant, options)), as_json)
    else:
        plain = _read(payload)
        _told(settings, work(_enqueue_one(settings, type, tenant, options, plain)), as_json)


class Way(NamedTuple):
    """Enqueues payloads as jobs, checked by their type or accepted as they are."""

    store: Store
    plan: Plan
    types: Types | None
    """The published job types, used when the code of the type is not available."""


def _way(settings: Settings, type: str, tenant: str, options: Options) -> Way:
    if settings.app is not None:
        app = chosen_app(settings)

        async def typed(plain: Payload) -> NewJob:
            return _typed(app, type, tenant, options, plain)

        return Way(app.store, typed, None)
    store = chosen_store(settings)
    types = Types(store)
    return Way(store, lambda plain: plan_raw(types, tenant, type, plain, options), types)


async def _is_known(settings: Settings, way: Way, type: str) -> bool:
    """Whether an app has published the type. Prints a note if none has."""
    if way.types is None or type in (known := await way.types.known([type])):
        return True
    hint = did_you_mean(type, known)
    words = f"note: no app has published a job type {type!r}; the job has default rules.{hint}"
    tell(settings, words)
    return False


def _typed(app: App, type: str, tenant: str, options: Options, plain: Payload) -> NewJob:
    return app.enqueuer.plan(tenant, app.registry.called(type).kind(**plain), options)


async def _enqueue_one(
    settings: Settings, type: str, tenant: str, options: Options, plain: Payload
) -> dict[str, object]:
    """The result of the command."""
    way = _way(settings, type, tenant, options)
    await way.store.open()
    try:
        job = await way.plan(plain)
        [answer] = await way.store.enqueue([job])
        if answer.error is not None:
            raise answer.error
        known = await _is_known(settings, way, type)
    finally:
        await way.store.close()
    facts = {"tenant": job.tenant, "queue": job.queue, "type": job.envelope.type}
    return {"id": answer.id, "created": answer.created, **facts, "type_known": known}


async def _enqueue_lines(
    settings: Settings, type: str, tenant: str, options: Options
) -> EnqueuedMany:
    """Sends batches. Stops at the first invalid line; the error names its number."""
    way = _way(settings, type, tenant, options)
    created = existing = 0
    await way.store.open()
    try:
        with progress("enqueued", None, quiet=settings.quiet) as so_far:
            lines = _lines(sys.stdin.buffer)
            while batch := [await _planned(way.plan, *line) for line in islice(lines, BATCH)]:
                for answer in await way.store.enqueue(batch):
                    if answer.error is not None:
                        raise answer.error
                    created += answer.created
                    existing += not answer.created
                so_far(created + existing)
        await _is_known(settings, way, type)
    except BaseException:
        tell(settings, f"{many(created + existing, 'job')} enqueued before this line")
        raise
    finally:
        await way.store.close()
    return EnqueuedMany(created, existing)


def _lines(stream: IO[bytes]) -> Iterator[tuple[str, Payload]]:
    """Each payload, with the text that names its line in errors."""
    for number in count(1):
        line = stream.readline(LINE_BYTES_MAX + 1)
        if not line:
            return
        if line.strip():
            yield f"line {number}", _parse(line, f"line {number}")


async def _planned(plan: Plan, where: str, plain: Payload) -> NewJob:
    try:
        return await plan(plain)
    except InvalidPayload as error:
        raise InvalidInput(field=where, why=str(error)) from error


def _read(payload: str | None) -> Payload:
    if payload is None:
        return {}
    if payload == "-":
        return _parse(sys.stdin.buffer.read(LINE_BYTES_MAX + 1), "payload")
    if payload.startswith("@"):
        try:
            with open(payload[1:], "rb") as file:
                return _parse(file.read(LINE_BYTES_MAX + 1), "payload")
        except OSError as error:
            why = f"cannot read {payload[1:]!r}: {error.strerror}"
            raise InvalidInput(field="payload", why=why) from None
    return _parse(payload.encode(), "payload")


def _parse(text: bytes, field: str) -> Payload:
    if len(text) > LINE_BYTES_MAX:
        raise InvalidInput(field=field, why=f"is longer than {LINE_BYTES_MAX} bytes")
    try:
        plain = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field=field, why=f"is not JSON: {error}") from None
    if not isinstance(plain, dict):
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(plain), "a number")
        raise InvalidInput(field=field, why=f"must be a JSON object, for example {{}}, not {kind}")
    return plain


def _told(settings: Settings, made: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    if not made["created"]:
        tell(settings, "this job already existed:")
    click.echo(made["id"])


def _told_many(found: EnqueuedMany, as_json: bool) -> None:
    if as_json:
        print_json({"created": found.created, "existing": found.existing})
    else:
        click.echo(f"{many(found.created, 'job')} enqueued, {found.existing} already existed")
