"""A process that changes tiers, and puts its own tenants into them, in an order of chance. Run as
`copies_process.py URL FAMILY SEED ROUNDS`; prints a line after each change.
"""

from __future__ import annotations

import asyncio
import random
import sys

from tests.stores.redis.copies import assign, delete_tier, listed, opened, set_tier

from holdfast.core.errors import InvalidInput, StaleSetting
from holdfast.core.tiers import name_of
from holdfast.stores.redis.store import RedisStore

TIER = "pro"


def tenants_of(family: str) -> list[str]:
    """Only one process at a time changes these."""
    return [f"{family}{n}" for n in range(3)]


async def _change(store: RedisStore, family: str, chance: random.Random) -> None:
    tenant = chance.choice(tenants_of(family))
    match chance.randrange(5):
        case 0:
            await set_tier(store, TIER, max_running=chance.randint(1, 9))
        case 1 | 2:
            await delete_tier(store, TIER)
        case 3:
            await assign(store, tenant, TIER)
            if name_of(TIER) not in await listed(store):
                print("broken", flush=True)  # Nobody else takes the tenant out of it.
        case _:
            for each in tenants_of(family):
                await assign(store, each, None)


async def main(url: str, family: str, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    async with opened(url) as store:
        for _ in range(rounds):
            try:
                await _change(store, family, chance)
                print("done", flush=True)
            except (InvalidInput, StaleSetting) as error:
                print(type(error).__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
