"""Look-ups of host names, in threads of their own.

A look-up cannot be interrupted, and the name server of a tenant may take long. So a tenant has a
share of the threads, and look-ups that wait hold up nothing else in the process.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from holdfast.core.edge_bounds import WEBHOOK_LOOKUPS, WEBHOOK_LOOKUPS_OF_TENANT
from holdfast.outbound.tries import NotSent

Resolve = Callable[[str, int], list[str]]
"""The addresses of a host and port. Raises OSError."""


def system(host: str, port: int) -> list[str]:
    """The addresses by the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Lookup:
    """Looks up names for the tenants of a process."""

    def __init__(self, resolve: Resolve = system) -> None:
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(WEBHOOK_LOOKUPS, "holdfast-webhooks")
        self._busy: Counter[str] = Counter()
        self._lock = threading.Lock()

    async def addresses(self, tenant: str, host: str, port: int) -> list[str]:
        """The addresses of a host. Raises NotSent."""
        with self._lock:
            if self._busy[tenant] >= WEBHOOK_LOOKUPS_OF_TENANT:
                raise NotSent("too many names of this tenant are being looked up")
            self._busy[tenant] += 1
        asked = self._threads.submit(self._resolve, host, port)
        # The thread counts until it is done, also if nobody waits for its answer any more.
        asked.add_done_callback(lambda _: self._done(tenant))
        try:
            found = await asyncio.wrap_future(asked)
        except (OSError, UnicodeError) as error:
            raise NotSent(f"its name was not found ({type(error).__name__})") from error
        if not found:
            raise NotSent("its name has no address")
        return found

    def _done(self, tenant: str) -> None:
        with self._lock:
            self._busy[tenant] -= 1
            if self._busy[tenant] <= 0:
                del self._busy[tenant]
