"""Blobs over HTTP: put by a producer, read by whoever may read jobs, or by the worker of a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import ClassVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.core.blob import BlobRef, check_media
from holdfast.core.errors import BlobNotFound
from holdfast.core.journal import Journal
from holdfast.fields import Strict
from holdfast.payload.app_blobs import needed
from holdfast.payload.blobs import Blobs
from holdfast.service.api.journals import running
from holdfast.service.call import Call
from holdfast.service.endpoint import Status
from holdfast.service.problems import NotJson, TimedOut, WrongMedia
from holdfast.service.render import blob_out

MEDIA = "application/octet-stream"
SEND_S = 30.0
"""A reader that accepts nothing for this long is disconnected."""


class Putting(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    media_type: str | None = None


async def put(call: Call) -> Status:
    """Stores the body, of the type application/octet-stream, as a blob. Enqueue a job that names it
    soon: a blob that no job names is deleted.
    """
    media = call.header(b"content-type")
    if media != MEDIA:  # No page of another site can make a browser send this type.
        raise WrongMedia(media=media, wanted=MEDIA)
    media_type = check_media(call.query.media_type)
    blobs = _blobs(call)
    return Status(201, blob_out(await blobs.put(_body(call), media_type=media_type)))


async def _body(call: Call) -> AsyncIterator[bytes]:
    while True:
        message = await call.request.receive()
        if message["type"] == "http.disconnect":
            raise NotJson(why="the client disconnected before it was complete")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def get(call: Call) -> Response:
    """The bytes of a blob. Compare their SHA-256 with the reference."""
    return await _answered(call, call.part("blob"))


async def of_job(call: Call) -> Response:
    """The bytes of a blob that a running job names, for its worker."""
    ref, id = call.job(), call.part("blob")
    page = await running(call, ref)
    bodies = [page.jobs[0].envelope.body]
    bodies += [entry.value for entry in page.journals.get(ref, Journal()).entries]
    if not any(isinstance(body, bytes) and id.encode() in body for body in bodies):
        raise BlobNotFound(id=id)
    return await _answered(call, id)


def _blobs(call: Call) -> Blobs:
    return needed(call.service.app_blobs).of(call.tenant)


async def _answered(call: Call, id: str) -> Response:
    service = call.service
    blobs = _blobs(call)
    service.hold(call.request, service.streams, call.caller)
    size, chunks = await blobs.raw(BlobRef(id, 0, "0" * 64).checked().id)
    service.deadlines.free()
    return Streamed(size, chunks)


class Streamed(Response):
    """A response of so many bytes, which come from a bucket."""

    def __init__(self, size: int, chunks: AsyncIterator[bytes]) -> None:
        self.status_code = 200
        self.background = None
        self._chunks = chunks
        self.raw_headers = [
            (b"content-type", MEDIA.encode()),
            (b"content-length", str(size).encode()),
            (b"content-disposition", b"attachment"),
            (b"x-content-type-options", b"nosniff"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._chunks) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                await _sent(send, chunk)
        await send({"type": "http.response.body", "body": b""})


async def _sent(send: Send, chunk: bytes) -> None:
    try:
        async with asyncio.timeout(SEND_S):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except TimeoutError:
        raise TimedOut(seconds=SEND_S) from None
