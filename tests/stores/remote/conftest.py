"""Services of these tests' own, and remote stores on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request
from tests.servers.service import Host, Place

from holdfast.service.rights import Caller, Unauthenticated
from holdfast.stores.remote.store import RemoteStore


class Tokens:
    """Authentication for tests: the token is a caller's name."""

    def __init__(self, *callers: Caller) -> None:
        self._callers = {caller.name: caller for caller in callers}

    async def caller(self, request: Request) -> Caller:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self._callers:
            raise Unauthenticated(why="no such token")
        return self._callers[token]


@pytest.fixture
def own_host(host: Host) -> Iterator[Host]:
    """The shared thread, without services when the test is over."""
    yield host
    host.clear()


class Opened:
    """Opens remote stores of one service by token, and closes them after the test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(self, place: Place, token: str | None = None, **options: Any) -> RemoteStore:
        store = place.remote(token=token, **options)
        await store.open()
        self._stack.push_async_callback(store.close)
        return store


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with AsyncExitStack() as stack:
        yield Opened(stack)
