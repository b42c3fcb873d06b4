"""The lifespan of an app: opens what its handlers share, and closes it when they have ended."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncContextDecorator,
    ContextDecorator,
    asynccontextmanager,
    nullcontext,
)
from typing import Any

from holdfast.context import Missing
from holdfast.core.errors import ConfigError

logger = logging.getLogger("holdfast")

Managed = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
Lifespan = Callable[[Any], Managed]
"""From the app to a context manager, sync or async, that yields the state."""

CLOSE_S = 5.0
"""How long an async lifespan may take to close."""


def check_lifespan(given: Any) -> Lifespan | None:
    """The lifespan, if it can be one. A generator function lacks its decorator."""
    if given is None:
        return None
    if not callable(given):
        raise _wrong(f"must be a function that takes the app, not {type(given).__name__}")
    if inspect.isasyncgenfunction(given) or inspect.isgeneratorfunction(given):
        raise _wrong("is a plain generator; decorate it with @contextlib.asynccontextmanager")
    if isinstance(given, AsyncContextDecorator | ContextDecorator):
        raise _wrong("is a context manager that was made already; give the function that makes it")
    lifespan: Lifespan = given
    return lifespan


@asynccontextmanager
async def opened(
    lifespan: Lifespan | None, app: Any, stop: asyncio.Event | None = None
) -> AsyncIterator[Any]:
    """The state while it is open; a `Missing` without a lifespan, or if `stop` is set before.

    ConfigError if it cannot be opened. An error of what runs meanwhile is none of the lifespan's:
    it closes as after success, and a failure of that is logged.
    """
    if lifespan is None or (stop is not None and stop.is_set()):
        yield Missing.LIFESPAN
        return
    manager = _managed(lifespan, app)
    until_stop = asyncio.timeout(None)
    try:
        async with until_stop, _watching(stop, until_stop):
            state = await _enter(manager)
    except Exception as error:
        if not until_stop.expired():
            logger.exception("the lifespan could not be opened")
            raise _failed(error) from error
        logger.info("the lifespan was not opened, because of a stop")
        state, manager = Missing.LIFESPAN, nullcontext()
    try:
        yield state
    finally:
        await _close(manager)


def _managed(lifespan: Lifespan, app: Any) -> Managed:
    try:
        made: object = lifespan(app)
    except Exception as error:
        logger.exception("the lifespan could not be opened")
        raise _failed(error) from error
    if isinstance(made, AbstractAsyncContextManager | AbstractContextManager):
        return made
    if inspect.iscoroutine(made):
        made.close()
    raise _wrong(
        f"returned {type(made).__name__}, not a context manager; decorate a generator with"
        " @contextlib.asynccontextmanager"
    )


@asynccontextmanager
async def _watching(stop: asyncio.Event | None, ended: asyncio.Timeout) -> AsyncIterator[None]:
    """Lets `ended` expire when `stop` is set."""
    if stop is None:
        yield
        return

    async def watch() -> None:
        await stop.wait()
        ended.reschedule(asyncio.get_running_loop().time())

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()


async def _enter(manager: Managed) -> Any:
    if isinstance(manager, AbstractAsyncContextManager):
        return await manager.__aenter__()
    return manager.__enter__()


async def _close(manager: Managed) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            if isinstance(manager, AbstractAsyncContextManager):
                await manager.__aexit__(None, None, None)
            else:
                manager.__exit__(None, None, None)
    except Exception:
        logger.exception("the lifespan could not be closed")


def _wrong(why: str) -> ConfigError:
    return ConfigError(field="lifespan", why=why)


def _failed(error: Exception) -> ConfigError:
    return _wrong(f"could not be opened: {type(error).__name__}: {error}")
