"""Limits the number of workers that are present with tokens of one tenant."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence

from holdfast.core import bounds
from holdfast.core.clock import seconds
from holdfast.core.errors import TenantFull
from holdfast.store import Hold, Store, Take
from holdfast.worker_registry import TENANT_PREFIX, tenant_prefix

REMEMBERED_MAX = 100_000
"""Maximum number of present workers that a process remembers."""


class Presences:
    """The workers that are present with tokens of tenants: at most PRESENCES_MAX per tenant."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, float] = OrderedDict()
        """Until when each worker is admitted, by this process's clock. A renewal needs no check."""
        self._lock = asyncio.Lock()

    async def hold(self, store: Store, tenant: str | None, takes: Sequence[Take]) -> list[Hold]:
        """The takes. Raises TenantFull if they would exceed the maximum of the tenant."""
        own = [one.name for one in takes if one.length_us and one.name.startswith(TENANT_PREFIX)]
        now_s = time.monotonic()
        if tenant is None or all(self._known.get(name, 0.0) > now_s for name in own):
            return await store.hold(takes)
        async with self._lock:  # Two concurrent calls would both find room.
            held = await store.hold(under=tenant_prefix(tenant), limit=bounds.PRESENCES_MAX)
            if len({*own, *(one.name for one in held)}) > bounds.PRESENCES_MAX:
                raise TenantFull(tenant=tenant, what="workers", max=bounds.PRESENCES_MAX)
            found = await store.hold(takes)
        for one in takes:
            if one.name in own:
                self._known.pop(one.name, None)
                self._known[one.name] = now_s + seconds(one.length_us)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return found
