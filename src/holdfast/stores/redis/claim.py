"""Claim: leases for a worker.

With one shard, claim.lua does all of it in one step; so it does for tenants of one shard. A claim
over several shards is shared among them (`claim_shards.py`), and so is every claim of a store with
several shards while the platform has settings (`claim_platform.py`).
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.core.clock import Micros
from holdfast.core.errors import StoreError
from holdfast.core.job import Lease
from holdfast.store import Claim
from holdfast.stores.redis.ack import ack_transitions
from holdfast.stores.redis.claim_platform import LimitedClaim
from holdfast.stores.redis.claim_shards import ShardedClaim, Taken, claim_args
from holdfast.stores.redis.rows import Unreadable, lease, rows_of
from holdfast.stores.redis.shards import Shards

LONG_CLAIM = 64
"""Leases whose rows and payloads may be more than a server sends at once."""


async def claim_jobs(shards: Shards, claim: Claim, now: Micros | None) -> list[Lease]:
    concerned = shards.concerned(claim.tenants)
    if not concerned or claim.limit == 0:
        return []
    found = None if shards.is_limited else await _without_limits(shards, claim, concerned, now)
    if found is None:
        shards.is_limited = True
        found = await LimitedClaim(shards, claim, concerned, now).leases()
    return await _readable(shards, found, now)


async def _without_limits(
    shards: Shards, claim: Claim, concerned: list[int], now: Micros | None
) -> list[Taken] | None:
    """The leases of a claim; None if it took none because limits of the platform count."""
    if len(concerned) > 1:
        sharded = ShardedClaim(shards, claim, concerned, now)
        found = await sharded.leases()
        return None if sharded.meets_limits and not found else found
    args = (claim_args(claim, [claim.nonce]), None)
    long = claim.limit >= LONG_CLAIM
    answer = await shards.call("claim", concerned[0], args, now, long=long)
    if not answer:
        return None
    shards.is_behind = bool(answer[4])
    return [lease(row) for row in rows_of(answer[0])]


async def _readable(shards: Shards, found: list[Taken], now: Micros | None) -> list[Lease]:
    """The leases of a claim. A job whose record cannot be read is failed by its own token."""
    broken = [one.failed() for one in found if isinstance(one, Unreadable)]
    if broken:
        with suppress(StoreError):  # Otherwise its lease expires, and it is met again.
            await ack_transitions(shards, broken, now)
    return [one for one in found if isinstance(one, Lease)]
