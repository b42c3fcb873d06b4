"""Middleware around a run: each one wraps the next, and the handler is the innermost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.context import Context
from holdfast.typed import Job

Call = Callable[[Context[Any], Job], Awaitable[Any]]
Middleware = Callable[[Context[Any], Job, Call], Awaitable[Any]]
"""`async def m(ctx, job, call): ...; result = await call(ctx, job); ...; return result`"""


def chain(middleware: Sequence[Middleware], handler: Call) -> Call:
    """One call that passes through all middleware, the first one outermost."""
    call = handler
    for one in reversed(middleware):
        call = _around(one, call)
    return call


def _around(outer: Middleware, inner: Call) -> Call:
    async def call(ctx: Context, job: Job) -> Any:
        return await outer(ctx, job, inner)

    return call
