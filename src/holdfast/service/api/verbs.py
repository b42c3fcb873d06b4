"""Wraps a verb of the contract as a handler: msgpack in and out, errors as {code, facts}."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from holdfast.core.codec import OBJECT, JsonCodec
from holdfast.core.errors import HoldfastError
from holdfast.core.job import JobRecord, Lease
from holdfast.fields import unfit
from holdfast.service.call import Call
from holdfast.service.endpoint import Handler
from holdfast.service.problems import RETRY_S, NotJson, WrongMedia, status_of
from holdfast.stores.remote import wire
from holdfast.stores.remote.wire import MEDIA, Verb

_json = JsonCodec()


class NotMsgpack(WrongMedia):
    text = "content-type: is {media!r}, only application/msgpack is read here"


class OtherFormat(WrongMedia):
    text = (
        "the client uses format {found!r} of the protocol, this service uses {spoken}: "
        "run one version of holdfast on both sides"
    )


def verb(one: Verb[Any]) -> Callable[[Callable[[Call, Any], Awaitable[Any]]], Handler]:
    """Turns a function of the verb's value into a handler of its route."""

    def made(act: Callable[[Call, Any], Awaitable[Any]]) -> Handler:
        @wraps(act)
        async def handler(call: Call) -> Response:
            _same_format(call)
            asked = _decoded(one, await _body(call))
            try:
                return Response(wire.encode(await act(call, asked)), media_type=MEDIA)
            except HoldfastError as error:
                if error.code not in wire.CLASSES:
                    raise  # An error of the service itself keeps the service's own shape.
                return _refused(error)

        return handler

    return made


def _same_format(call: Call) -> None:
    """Refuses a client of another version before any of its values is decoded."""
    said = call.request.headers.get(wire.FORMAT_HEADER)
    if said is not None and said != str(wire.FORMAT):
        raise OtherFormat(found=said[:20], spoken=wire.FORMAT)


def _refused(error: HoldfastError) -> Response:
    status = status_of(error)
    headers = {"retry-after": str(RETRY_S)} if status in (429, 503) else None
    return Response(wire.encode(wire.error_out(error)), status, headers, media_type=MEDIA)


async def _body(call: Call) -> bytes:
    media = call.request.headers.get("content-type", "")
    if media.partition(";")[0].strip().lower() != MEDIA:
        raise NotMsgpack(media=media)
    try:
        return await call.request.body()
    except ClientDisconnect:
        raise NotJson(why="the client disconnected before it was complete") from None


def _decoded(one: Verb[Any], body: bytes) -> Any:
    try:
        return one.asked.decode(body)
    except msgspec.ValidationError as error:
        raise unfit(error, None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        why = "it is empty" if not body else f"it is not msgpack: {error}"
        raise NotJson(why=why) from None


# -- objects ---------------------------------------------------------------------------------------


def encoded_lease(lease: Lease) -> Lease:
    if lease.job.envelope.codec != OBJECT:
        return lease
    return msgspec.structs.replace(lease, job=encoded(lease.job))


def encoded(job: JobRecord) -> JobRecord:
    """Encodes a job that a memory store holds as an object."""
    envelope = job.envelope
    if envelope.codec != OBJECT:
        return job
    body = _json.encode(envelope.body)
    result = None if job.result is None else _json.encode(job.result)
    sealed = msgspec.structs.replace(envelope, codec=_json.id, body=body)
    return msgspec.structs.replace(job, envelope=sealed, result=result)
