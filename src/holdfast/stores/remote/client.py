"""How the service is called: connections of each event loop, time-outs and retries.

Any thread that runs an event loop may call. Connections belong to the loop that made them, so each
loop has its own pool, which is closed with the loop. A call that did not reach the service, or that
the service turned away, is retried with growing delays until its time-out. A call whose answer was
lost is retried only if its verb may be repeated. Only `Transport` knows HTTP: tests replace it and
call the application directly.
"""

from __future__ import annotations

import asyncio
import math
import random
import ssl
import threading
import time
from contextlib import suppress
from typing import Protocol, TypeVar

import aiohttp
import msgspec

from holdfast.breaker import Breaker
from holdfast.core.backoff import Delays
from holdfast.core.errors import ConfigError, HoldfastError, InvalidInput, StoreUnavailable
from holdfast.stores import forks
from holdfast.stores.remote.errors import Answer, NoAnswer, NotSent, refusal
from holdfast.stores.remote.options import Options
from holdfast.stores.remote.wire import FORMAT, FORMAT_HEADER, MEDIA, PATH, Hello, Verb, encode

RETRY_FIRST_S = 0.02
RETRY_MOST_S = 1.0
KEEP_S = 15.0
"""How long an idle connection is kept: less than the service keeps it, so that we close it."""
TENANT_HEADER = "Holdfast-Tenant"

T = TypeVar("T")

_hello = msgspec.msgpack.Decoder(Hello)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """One try of one call."""

    path: str
    body: bytes | None
    """None asks with GET."""
    timeout_s: float
    waits: bool = False
    """A long wait: it takes a connection of a pool of its own."""


class Transport(Protocol):
    """How one request reaches the service."""

    async def send(self, sent: Sent) -> Answer:
        """The answer, whatever its status; NotSent or NoAnswer when there is none."""

    async def close(self) -> None: ...


class Client:
    """Calls the verbs of one service, with retries."""

    def __init__(self, options: Options, transport: Transport) -> None:
        self._options = options
        self._transport = transport
        self._breaker = Breaker(options.breaker, options.breaker_s)
        self._closed = False
        forks.keep(self)

    async def hello(self) -> Hello:
        try:
            return _hello.decode(await self._retried(PATH, None, repeats=True))
        except msgspec.MsgspecError:
            why = f"{self._options.name} is no Holdfast service, or one of another version"
            raise ConfigError(field="store", why=why) from None

    async def ask(self, verb: Verb[T], value: bytes, *, wait_s: float = 0.0) -> T:
        """The answer of a verb; `wait_s` is how long the service may wait before it answers."""
        body = await self._retried(verb.path, value, repeats=verb.repeats, wait_s=wait_s)
        try:
            return verb.told.decode(body)
        except msgspec.MsgspecError as error:
            why = f"its answer to {verb.name} cannot be read: {error}"
            raise StoreUnavailable(store=self._options.name, why=why) from None

    async def close(self) -> None:
        self._closed = True
        await self._transport.close()

    async def _retried(
        self, path: str, body: bytes | None, *, repeats: bool, wait_s: float = 0.0
    ) -> bytes:
        rest_s = self._breaker.admit()
        if rest_s > 0:
            why = f"its last {self._breaker.failures} calls failed; left alone for {rest_s:.1f} s"
            raise StoreUnavailable(store=self._options.name, why=why)
        deadline = time.monotonic() + self._options.timeout_s
        delays = Delays(RETRY_FIRST_S, RETRY_MOST_S, chance=random.random)
        while True:
            left_s = max(0.01, deadline - time.monotonic())
            sent = Sent(path=path, body=body, timeout_s=left_s + wait_s, waits=wait_s > 0)
            tried = await self._try(sent, repeats)
            if isinstance(tried, bytes):
                return tried
            if not tried.again or self._closed:
                raise tried.error
            pause_s = max(delays.next_s(), tried.after_s, self._breaker.admit())
            if time.monotonic() + pause_s >= deadline:
                raise tried.error
            await asyncio.sleep(pause_s)

    async def _try(self, sent: Sent, repeats: bool) -> bytes | _Failed:
        name = self._options.name
        try:
            answer = await self._transport.send(sent)
        except NotSent as error:
            self._breaker.failed()
            why = f"it cannot be reached ({error})"
            return _Failed(StoreUnavailable(store=name, why=why), True)
        except NoAnswer as error:
            self._breaker.failed()
            why = f"it gave no answer ({error}); the call may have been done all the same"
            return _Failed(StoreUnavailable(store=name, why=why), repeats)
        if answer.status == 200 and answer.media == MEDIA:
            self._breaker.worked()
            return answer.body
        refused = refusal(answer, name, len(sent.body or b""))
        if refused.passing and not refused.untouched:
            self._breaker.failed()
        else:
            self._breaker.worked()
        again = refused.passing and (repeats or refused.untouched)
        return _Failed(refused.error, again, answer.retry_after_s or 0.0)


class _Failed(msgspec.Struct, frozen=True):
    error: HoldfastError
    again: bool
    after_s: float = 0.0


def packed(verb: Verb[T], value: object) -> bytes:
    """The value in msgpack; InvalidInput if it cannot be encoded."""
    try:
        return encode(value)
    except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError) as error:
        raise InvalidInput(field=verb.name, why=f"cannot be sent: {error}") from None


# -- HTTP ------------------------------------------------------------------------------------------


class HttpTransport:
    """Over sockets, by aiohttp."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ssl = _ssl(options)
        self._lock = threading.Lock()
        self._links: dict[asyncio.AbstractEventLoop, _Link] = {}
        self._closed = False

    async def send(self, sent: Sent) -> Answer:
        link = self._link()
        session = link.waits if sent.waits else link.calls
        connect_s = min(self._options.connect_s, sent.timeout_s)
        timeout = aiohttp.ClientTimeout(total=sent.timeout_s, sock_connect=connect_s)
        method = "GET" if sent.body is None else "POST"
        url = self._options.base + sent.path
        try:
            async with session.request(
                method, url, data=sent.body, timeout=timeout, allow_redirects=False
            ) as response:
                body = await response.read()
                headers = response.headers
                return Answer(
                    status=response.status,
                    media=response.content_type,
                    body=body,
                    retry_after_s=_seconds(headers.get("retry-after")),
                )
        except aiohttp.ClientSSLError as error:
            # A retry would meet the same certificate, so this is final.
            why = f"its certificate does not hold, or it speaks no TLS ({error}); see ca"
            raise StoreUnavailable(store=self._options.name, why=why) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise NotSent(str(error) or "connecting took too long") from error
        except aiohttp.ClientConnectorError as error:
            raise NotSent(str(error.os_error or error)) from error
        except TimeoutError as error:
            raise NoAnswer(f"not within {sent.timeout_s:.1f} s") from error
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not session.closed:
                raise
            raise NoAnswer(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Closes the connections of all loops; those of other threads as soon as they can."""
        with self._lock:
            self._closed = True
            links, self._links = self._links, {}
        for loop, link in links.items():
            if loop is asyncio.get_running_loop():
                await link.close()
            else:
                link.close_from_outside(loop)

    def _link(self) -> _Link:
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is None:
            with self._lock:
                if self._closed:
                    raise NotSent("it is not open")
                for old in [old for old in self._links if old.is_closed()]:
                    del self._links[old]
                link = self._links[loop] = _Link(self._options, self._ssl)
        return link


class _Link:
    """The connections of one event loop. Long waits have a pool of their own: a hundred of them
    must not keep an ack from its connection.
    """

    def __init__(self, options: Options, context: ssl.SSLContext | bool) -> None:
        self.calls = _session(options, context, options.pool)
        self.waits = _session(options, context, 0)  # No limit here: the store limits waits.
        # Ends with the loop: asyncio.run cancels what is left, and that closes the connections.
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="holdfast-remote")

    async def close(self) -> None:
        self._keeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeper

    def close_from_outside(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # The loop has closed: its connections went with it.
            loop.call_soon_threadsafe(self._keeper.cancel)

    async def _keep(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for session in (self.calls, self.waits):
                await session.close()


def _session(options: Options, context: ssl.SSLContext | bool, pool: int) -> aiohttp.ClientSession:
    headers = {
        "content-type": MEDIA,
        "accept": MEDIA,
        "user-agent": "holdfast",
        FORMAT_HEADER: str(FORMAT),
    }
    if options.token is not None:
        headers["authorization"] = f"Bearer {options.token}"
    if options.tenant is not None:
        headers[TENANT_HEADER] = options.tenant
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=pool, keepalive_timeout=KEEP_S, ssl=context),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _ssl(options: Options) -> ssl.SSLContext | bool:
    if not options.base.startswith("https:") or (options.verify and options.ca is None):
        return True
    if not options.verify:
        return False
    try:
        return ssl.create_default_context(cafile=options.ca)
    except OSError as error:
        raise ConfigError(field="store", why=f"ca={options.ca}: {error}") from None


def _seconds(text: str | None) -> float | None:
    """Retry-After if it is a number; a date is ignored, and our own delays decide."""
    try:
        length = float(text or "")
    except ValueError:
        return None
    return length if math.isfinite(length) and length >= 0 else None
