"""`holdfast enqueue`: one job from the command line, or one for each line of stdin."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import click
import msgspec

from holdfast import operate
from holdfast.app import App
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
from holdfast.job import NewJob, check_name
from holdfast.limits import PAYLOAD_MAX, TENANT_MAX
from holdfast.store import Enqueued, Store

BATCH = 200
"""Jobs read from stdin before they are sent."""
LINE_BYTES_MAX = 4 * PAYLOAD_MAX
"""A line may be longer than its payload: spaces and escapes do not count there."""

Payload = dict[str, object]
Plan = Callable[[Payload], NewJob]


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

    With --app the type checks the payload; without, any JSON object is taken as it is. The payload
    is given as text, as - for stdin, or as @FILE; without one it is empty.
    """
    tenant = check_name("tenant", given.pop("tenant"), TENANT_MAX)
    options = checked({name: value for name, value in given.items() if value not in (None, ())})
    if lines:
        if payload is not None:
            raise click.UsageError("--lines reads the payloads from stdin: give none here")
        if "id" in options or "key" in options:
            raise click.UsageError("--id and --key name one job: not together with --lines")
        many = work(_enqueue_lines(settings, type, tenant, options))
        _told_many(many, as_json)
    else:
        plain = _read(payload)
        job, answer = work(_enqueue_one(settings, type, tenant, options, plain))
        _told(settings, job, answer, as_json)


def _planner(settings: Settings, type: str, tenant: str, options: Options) -> tuple[Store, Plan]:
    """The store, and how a payload becomes a job: checked by its type, or as it is."""
    if settings.app is None:
        return chosen_store(settings), lambda plain: operate.plan_raw(tenant, type, plain, options)
    app = chosen_app(settings)
    return app.store, lambda plain: _typed(app, type, tenant, options, plain)


def _typed(app: App, type: str, tenant: str, options: Options, plain: Payload) -> NewJob:
    job_type = app.registry.named(type)
    if job_type is None:
        hint = did_you_mean(type, app.registry.names())
        raise JobTypeNotRegistered(field="type", type=type, hint=hint)
    return app.enqueuer.plan(tenant, job_type.kind(**plain), options)


async def _enqueue_one(
    settings: Settings, type: str, tenant: str, options: Options, plain: Payload
) -> tuple[NewJob, Enqueued]:
    store, plan = _planner(settings, type, tenant, options)
    job = plan(plain)
    await store.open()
    try:
        [answer] = await store.enqueue([job])
    finally:
        await store.close()
    if answer.error is not None:
        raise answer.error
    return job, answer


async def _enqueue_lines(
    settings: Settings, type: str, tenant: str, options: Options
) -> EnqueuedMany:
    """Sends batch by batch; stops at the first bad line, whose number the error tells."""
    store, plan = _planner(settings, type, tenant, options)
    created = existing = 0
    await store.open()
    try:
        with progress("enqueued", None, quiet=settings.quiet) as so_far:
            jobs = _planned(sys.stdin.buffer, plan)
            while batch := list(itertools.islice(jobs, BATCH)):
                for answer in await store.enqueue(batch):
                    if answer.error is not None:
                        raise answer.error
                    created += answer.created
                    existing += not answer.created
                so_far(created + existing)
    except BaseException:
        tell(settings, f"{created + existing} jobs were enqueued before this")
        raise
    finally:
        await store.close()
    return EnqueuedMany(created, existing)


def _planned(stream: IO[bytes], plan: Plan) -> Iterator[NewJob]:
    for number in itertools.count(1):
        line = stream.readline(LINE_BYTES_MAX + 1)
        if not line:
            return
        if not line.strip():
            continue
        plain = _parse(line, f"line {number}")
        try:
            job = plan(plain)
        except InvalidPayload as error:
            raise InvalidInput(field=f"line {number}", why=str(error)) from error
        yield job


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


def _told(settings: Settings, job: NewJob, answer: Enqueued, as_json: bool) -> None:
    if as_json:
        facts = {"tenant": job.tenant, "queue": job.queue, "type": job.envelope.type}
        print_json({"id": answer.id, "created": answer.created, **facts})
        return
    if not answer.created:
        tell(settings, "this job was there already:")
    click.echo(answer.id)


def _told_many(many: EnqueuedMany, as_json: bool) -> None:
    if as_json:
        print_json({"created": many.created, "existing": many.existing})
    else:
        click.echo(f"{many.created} jobs enqueued, {many.existing} were there already")
