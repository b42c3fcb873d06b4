"""A program that forks before and after it opened a store. Run as `forks.py [URL]`; without a URL
it is over an engine of its own. Says what its children meet, a line each.
"""

from __future__ import annotations

import asyncio
import os
import sys

from tests.foundationdb_engine import Engine

from holdfast.core.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.stores import open_store
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.builders import job


def make(url: str | None) -> Store:
    if url is not None:
        return open_store(url)
    return FoundationStore(Options(prefix="c"), None, Engine().database())


async def use(store: Store, id: str, *, opens: bool) -> str:
    """Whether a job of this id was made, or why not."""
    try:
        if opens:
            await store.open()
        return f"created: {(await store.enqueue([job(id)]))[0].created}"
    except StoreUnavailable as error:
        return f"refused: {error}"


def in_child(store: Store, id: str, *, opens: bool) -> None:
    child = os.fork()
    if child == 0:
        print(asyncio.run(use(store, id, opens=opens)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)


def main(url: str | None) -> None:
    store = make(url)
    in_child(store, "a", opens=True)
    print(asyncio.run(use(store, "b", opens=True)), flush=True)
    in_child(store, "c", opens=False)
    in_child(store, "d", opens=True)
    print(asyncio.run(use(store, "e", opens=False)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else None)
