"""How sleepers are told across processes: scripts publish hints, one connection each hears them.

The hint names lines with work and jobs that ended, or says that there are too many to name. Hints
only: who sleeps has looked before, and looks again when the subscription comes back.
"""

from __future__ import annotations

import asyncio
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from redis import Redis, exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.store import Ref
from holdfast.stores.bell import Bell
from holdfast.stores.redis.options import Options
from holdfast.stores.redis.rows import unpack

HEALTH_S = 10.0
"""A subscription that was silent this long is asked whether it is alive."""
NAP_S_MIN = 0.05
NAP_S_MAX = 2.0

Places = Callable[[], list[tuple[str, int]]]


class Ear:
    """The subscription of one store, and the thread that listens to it."""

    def __init__(self, options: Options, channel: str, bell: Bell, places: Places) -> None:
        self._options = options
        self._channel = channel
        self._bell = bell
        self._places = places
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._end, self._ended = socket.socketpair()
        self.hears = False
        self._tried: Future[None] = Future()
        """Done when the first subscription was made, or failed."""

    async def listen(self, timeout_s: float) -> bool:
        """Starts listening, once; True while it can be relied on."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="holdfast-wake", daemon=True)
                self._thread.start()
        if not self._tried.done():
            tried = asyncio.wrap_future(self._tried)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(tried), timeout_s)
        return self.hears

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
        self._end.send(b"x")
        self._try_over()
        if thread is not None:
            thread.join()
        self._end.close()
        self._ended.close()

    def _run(self) -> None:
        nap_s, turn = NAP_S_MIN, 0
        while not self._closed:
            places = self._places()
            host, port = places[turn % len(places)]
            turn += 1
            started = time.monotonic()
            try:
                self._listen(host, port)
            except (exceptions.RedisError, OSError):
                if time.monotonic() - started > NAP_S_MAX:
                    nap_s = NAP_S_MIN
            finally:
                self.hears = False
                self._try_over()
            if self._closed or self._over(nap_s * (0.5 + random.random())):
                return
            nap_s = min(nap_s * 2, NAP_S_MAX)

    def _listen(self, host: str, port: int) -> None:
        """Hears hints until the connection fails or the store is closed."""
        client: Any = _client(self._options, host, port)
        try:
            with client.pubsub() as subscription:
                subscription.subscribe(self._channel)
                self._hear(subscription)
        finally:
            client.close()

    def _hear(self, subscription: Any) -> None:
        asked = False
        while not self._closed:
            sock = subscription.connection._sock
            ready, _, _ = select.select([sock, self._ended], [], [], HEALTH_S)
            if self._ended in ready:
                return
            if not ready:
                if asked:
                    raise exceptions.TimeoutError("the subscription is dead")
                subscription.ping()
                asked = True
                continue
            asked = False
            while (message := subscription.get_message(timeout=0)) is not None:
                self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self.hears = True
            if self._tried.done():
                self._bell.ring_all()  # What happened before this was not heard.
            self._try_over()
        elif message["type"] == "message":
            many_lines, lines, many_ended, ended = unpack(message["data"])
            if many_lines or many_ended:
                self._bell.ring_all()
                return
            found = (tuple(line.split("\0", 1)) for line in lines or ())
            self._bell.ring(found, [Ref(*name) for name in ended or ()])

    def _try_over(self) -> None:
        with self._lock:
            if not self._tried.done():
                self._tried.set_result(None)

    def _over(self, timeout_s: float) -> bool:
        return bool(select.select([self._ended], [], [], timeout_s)[0])


def _client(options: Options, host: str, port: int) -> Redis:
    tls: dict[str, Any] = {}
    if options.tls:
        tls = {
            "ssl": True,
            "ssl_ca_certs": options.ca,
            "ssl_cert_reqs": "required" if options.verify else "none",
            "ssl_check_hostname": options.verify,
        }
    return Redis(
        host=host,
        port=port,
        db=options.db,
        username=options.username,
        password=options.password,
        socket_timeout=options.timeout_s,
        socket_connect_timeout=options.connect_s,
        client_name="holdfast-wake",
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        **tls,
    )
