"""How many workers may be present by tokens of one tenant."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence

from holdfast import limits
from holdfast.clock import seconds
from holdfast.errors import TenantFull
from holdfast.roster import TENANT_PREFIX, tenant_prefix
from holdfast.store import Hold, Store, Take

REMEMBERED_MAX = 100_000
"""Workers of tenants that a process knows to be present."""


class Presences:
    """The workers that are present by tokens of one tenant: at most PRESENCES_MAX of each."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, float] = OrderedDict()
        """Until when each was let in, by this process's clock: renewing it asks nothing."""
        self._lock = asyncio.Lock()

    async def hold(self, store: Store, tenant: str | None, takes: Sequence[Take]) -> list[Hold]:
        """The takes; TenantFull if they would make more of the tenant's workers present."""
        own = [one.name for one in takes if one.length_us and one.name.startswith(TENANT_PREFIX)]
        now_s = time.monotonic()
        if tenant is None or all(self._known.get(name, 0.0) > now_s for name in own):
            return await store.hold(takes)
        async with self._lock:  # Two that come at once would both see room.
            held = await store.hold(under=tenant_prefix(tenant), limit=limits.PRESENCES_MAX)
            if len({*own, *(one.name for one in held)}) > limits.PRESENCES_MAX:
                raise TenantFull(tenant=tenant, what="workers", max=limits.PRESENCES_MAX)
            found = await store.hold(takes)
        for one in takes:
            if one.name in own:
                self._known.pop(one.name, None)
                self._known[one.name] = now_s + seconds(one.length_us)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return found
