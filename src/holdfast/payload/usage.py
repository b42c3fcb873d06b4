"""How many bytes a tenant has in the bucket, so that none fills it (`blob_tenant_max`).

Each round of the sweep adds up what tenants have, and writes it down for those that have more than
half of what they may. Processes read that, and add what they have put since. So the cap holds
within one process; what others put is known after the next round.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from holdfast.core.blob import segment
from holdfast.core.edge_bounds import BLOB_KNOWN_MAX, BLOB_USAGE_S, SWEEP_PAGE
from holdfast.core.errors import TenantFull
from holdfast.payload.bucket import Bucket

UNDER = "usage"
"""usage/TENANT: the bytes that the tenant had, as a number."""


class _Known(msgspec.Struct):
    written: bytes
    """What the last round wrote."""
    read_s: float
    used: int


class Usage:
    """What one process knows of it. Without a cap it asks for nothing."""

    def __init__(self, bucket: Bucket, most: int | None) -> None:
        self._bucket = bucket
        self._most = most
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def left(self, tenant: str) -> int | None:
        """How many more bytes the tenant may put; None: any number. TenantFull if there is none."""
        if self._most is None:
            return None
        known = self._known.get(tenant)
        if known is None or time.monotonic() - known.read_s > BLOB_USAGE_S:
            known = await self._read(tenant, known)
        if known.used >= self._most:
            raise self.full(tenant)
        return self._most - known.used

    async def _read(self, tenant: str, before: _Known | None) -> _Known:
        written = await self._bucket.read(f"{UNDER}/{segment(tenant)}") or b""
        used = int(written) if written.isdigit() and len(written) < 20 else 0
        if before is not None and before.written == written:
            used = before.used
        known = self._known[tenant] = _Known(written, time.monotonic(), used)
        self._known.move_to_end(tenant)
        while len(self._known) > BLOB_KNOWN_MAX:
            self._known.popitem(last=False)
        return known

    def added(self, tenant: str, size: int) -> None:
        """Counts what was put now."""
        if tenant in self._known:
            self._known[tenant].used += size

    def full(self, tenant: str) -> TenantFull:
        return TenantFull(tenant=tenant, max=self._most, what="bytes of blobs")


async def write_down(bucket: Bucket, bytes_of: Mapping[str, int], most: int) -> None:
    """Writes what tenants have, by their segments, and removes what no longer holds."""
    large = {tenant: size for tenant, size in bytes_of.items() if size * 2 > most}
    for tenant, size in large.items():
        await bucket.put(f"{UNDER}/{tenant}", b"%d" % size)
    async for page in bucket.under(UNDER, SWEEP_PAGE):
        for stored in page:
            if stored.path.removeprefix(f"{UNDER}/") not in large:
                await bucket.delete(stored.path)
