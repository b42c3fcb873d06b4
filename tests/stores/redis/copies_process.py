"""A process that changes tiers, and puts tenants into them, in an order of chance. Run as
`copies_process.py URL SEED ROUNDS`; prints a line after each change.
"""

from __future__ import annotations

import asyncio
import random
import sys

from tests.stores.redis.copies import assign, delete_tier, opened, set_tier

from holdfast.core.errors import InvalidInput, StaleSetting

TIERS = ("free", "pro")
TENANTS = tuple(f"t{n}" for n in range(8))


async def main(url: str, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    async with opened(url) as store:
        for _ in range(rounds):
            tier, tenant = chance.choice(TIERS), chance.choice(TENANTS)
            try:
                match chance.randrange(6):
                    case 0:
                        await set_tier(store, tier, max_running=chance.randint(1, 9))
                    case 1 | 2:
                        await delete_tier(store, tier)
                    case 3 | 4:
                        await assign(store, tenant, None)
                    case _:
                        await assign(store, tenant, tier)
                print("done", flush=True)
            except (InvalidInput, StaleSetting) as error:
                print(type(error).__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
