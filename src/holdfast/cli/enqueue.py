"""`holdfast enqueue`: one job from the command line, or one for each line of stdin."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import count, islice
from typing import IO, Any, NamedTuple

import click
import msgspec

from holdfast.app import App
from holdfast.check import check_name
from holdfast.cli.common import (
    Settings,
    chosen_app,
    chosen_store,
    common_options,
    json_option,
    tell,
    work,
)
from holdfast.cli.show import print_json, progress
from holdfast.cli.values import length, moment
from holdfast.enqueue import EnqueuedMany, Options, checked
from holdfast.errors import InvalidInput, InvalidPayload, JobTypeNotRegistered, did_you_mean
from holdfast.job import NewJob
from holdfast.limits import PAYLOAD_MAX, TENANT_MAX
from holdfast.operate import plan_raw
from holdfast.plural import many
from holdfast.store import Store
from holdfast.types import Types

BATCH = 200
"""Jobs read from stdin before they are sent."""
LINE_BYTES_MAX = 4 * PAYLOAD_MAX
"""A line may be longer than its payload: spaces and escapes do not count there."""

Payload = dict[str, object]
Plan = Callable[[Payload], Awaitable[NewJob]]


@click.command("enqueue")
@click.argument("type")
@click.argument("payload", required=False, metavar="[JSON|-|@FILE]")
@click.option("--tenant", required=True, help="The customer the job belongs to.")
@click.option("--queue", help="Another queue than the type's.")
@click.option("--key", help="The same key gives the same job, until it is finished.")
@click.option("--delay", type=length, metavar="LENGTH", help="Not before: 30, 200ms, 5m, 2h.")
@click.option("--run-at", type=moment, metavar="INSTANT", help="Not before: 2026-01-31T12:00:00Z.")
@click.option("--priority", type=int, help="Higher comes first; 0 is the default.")
@click.option("--group", help="A key inside the tenant: a crawl, a user, a file.")
@click.option("--tag", "tags", multiple=True, help="A word to find it by. Repeatable.")
@click.option("--ttl", type=length, metavar="LENGTH", help="Not started within: failed, EXPIRED.")
@click.option("--id", help="Chosen by you, so that a repeated call finds the first one's job.")
@click.option("--max-attempts", type=int)
@click.option("--lines", is_flag=True, help="Enqueue one job for each line of stdin.")
@json_option
@common_options
@click.pass_obj
def command(
    settings: Settings, /, type: str, payload: str | None, lines: bool, as_json: bool, **given: Any
) -> None:
    """Enqueue a job of TYPE with a JSON object as its payload.

    With --app the type checks the payload. Without, any JSON object is taken as it is, and the type
    has the queue and the rules that an app published when it opened this store. The payload is
    given as text, as - for stdin, or as @FILE; without one it is empty.
    """
    tenant = check_name("tenant", given.pop("tenant"), TENANT_MAX)
    options = checked({name: value for name, value in given.items() if value not in (None, ())})
    if lines:
        if payload is not None:
            raise click.UsageError("--lines reads the payloads from stdin: give none here")
        if "id" in options or "key" in options:
            raise click.UsageError("--id and --key name one job: not together with --lines")
        _told_many(work(_enqueue_lines(settings, type, tenant, options)), as_json)
    else:
        plain = _read(payload)
        _told(settings, work(_enqueue_one(settings, type, tenant, options, plain)), as_json)


class Way(NamedTuple):
    """Where jobs go, and how a payload becomes one: checked by its type, or as it is."""

    store: Store
    plan: Plan
    types: Types | None
    """What apps have published, where the code of the type is not here."""


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
    """Whether a worker can know the type; a note says when none seems to."""
    if way.types is None or type in (known := await way.types.known([type])):
        return True
    hint = did_you_mean(type, known)
    words = f"note: no app has published a job type {type!r}; the job has default rules.{hint}"
    tell(settings, words)
    return False


def _typed(app: App, type: str, tenant: str, options: Options, plain: Payload) -> NewJob:
    job_type = app.registry.named(type)
    if job_type is None:
        hint = did_you_mean(type, app.registry.names())
        raise JobTypeNotRegistered(field="type", type=type, hint=hint)
    return app.enqueuer.plan(tenant, job_type.kind(**plain), options)


async def _enqueue_one(
    settings: Settings, type: str, tenant: str, options: Options, plain: Payload
) -> dict[str, object]:
    """What became of it."""
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
    """Sends batch by batch; stops at the first bad line, whose number the error tells."""
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
        tell(settings, f"enqueued before this: {many(created + existing, 'job')}")
        raise
    finally:
        await way.store.close()
    return EnqueuedMany(created, existing)


def _lines(stream: IO[bytes]) -> Iterator[tuple[str, Payload]]:
    """The payloads, each with the words for its line."""
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
        raise InvalidInput(field=field, why=f"is over {LINE_BYTES_MAX} bytes")
    try:
        plain = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field=field, why=f"is not JSON: {error}") from None
    if not isinstance(plain, dict):
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(plain), "a number")
        raise InvalidInput(field=field, why=f"must be a JSON object, as in {{}}, not {kind}")
    return plain


def _told(settings: Settings, made: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    if not made["created"]:
        tell(settings, "this job was there already:")
    click.echo(made["id"])


def _told_many(found: EnqueuedMany, as_json: bool) -> None:
    if as_json:
        print_json({"created": found.created, "existing": found.existing})
    else:
        click.echo(f"{many(found.created, 'job')} enqueued, there already: {found.existing}")
