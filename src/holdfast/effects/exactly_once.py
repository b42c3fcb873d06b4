"""The handler's writes and the completion of its job commit together, or neither does.

    async with exactly_once(ctx, connection) as effect:
        await connection.execute("UPDATE accounts ...")
        effect.result = {"moved": 500}

The block begins a transaction on the connection, completes the job at its end, under the rules of
any ack (P3-P5), and commits. An error rolls back both, and the job is retried as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from holdfast.context import Completion, Context
from holdfast.core.errors import InvalidInput
from holdfast.effects.transactions import OwnTransaction, transaction_on
from holdfast.run_here import run_here
from holdfast.stores.callers import is_async

T = TypeVar("T")


class exactly_once:  # noqa: N801 - it reads as a statement, like contextlib's
    """`async with` in coroutines, `with` in plain functions. The connection is one to the store's
    database, with no transaction open. Nothing of the handler should follow the block.
    """

    def __init__(self, ctx: Context[Any], connection: Any) -> None:
        self.result: Any = None
        """The result of the job. The handler may return it too, for its annotation; nothing else
        that it returns is stored.
        """
        self._completion: Completion = ctx.completion
        self._connection = connection
        self._transaction: OwnTransaction | None = None
        self._blocks = False

    async def __aenter__(self) -> exactly_once:
        await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return await self._end(error)

    def __enter__(self) -> exactly_once:
        self._blocks = True
        run_here(self._begin(), "connection", "use async with")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return run_here(self._end(error), "connection", "use async with")

    async def _begin(self) -> None:
        self._completion.check()
        self._check_way()
        transaction = transaction_on(self._connection, self._blocks)
        await transaction.begin(self._completion.left_s)
        self._transaction = transaction
        self._completion.begun(transaction.locks_store)

    def _check_way(self) -> None:
        """Refuses what would block the event loop, or wait without one."""
        kind, waits = type(self._connection).__qualname__, is_async(self._connection)
        if self._blocks and (waits or _in_loop()):
            why = f"is an async connection ({kind}): use async with" if waits else _IN_LOOP
            raise InvalidInput(field="connection", why=why)
        if not self._blocks and not waits and not _is_sqlite(self._connection):
            why = f"is a blocking connection ({kind}): use it in a plain function (def), by with"
            raise InvalidInput(field="connection", why=why)

    async def _end(self, error: BaseException | None) -> bool:
        """False: an error of the block goes on."""
        assert self._transaction is not None, "entered"
        if error is not None:
            await self._undo()
            return False
        try:
            await self._transaction.before_ack()
            if self._completion.has_unsent:
                await self._wait(self._completion.keep())
            change = await self._wait(self._completion.change(self.result))
            await self._completion.ack(self._connection, change)
        except BaseException:
            await self._undo()
            raise
        try:
            await self._transaction.commit()
        except BaseException as failure:
            await self._transaction.abandon(hard=not isinstance(failure, Exception))
            committed = await self._wait(self._completion.was_committed())
            self._completion.ended(committed)
            if not committed or not isinstance(failure, Exception):
                raise
            return False
        self._completion.ended(committed=True)
        return False

    async def _undo(self) -> None:
        assert self._transaction is not None
        try:
            await self._transaction.abandon()
        finally:
            self._completion.ended(committed=False)

    async def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        """The answer of a call that needs the worker's loop."""
        return self._completion.block(call) if self._blocks else await call


_IN_LOOP = "is used on the event loop by with: use async with, or a plain function (def)"


def _in_loop() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def _is_sqlite(connection: Any) -> bool:
    """Statements on a file are short, and no lock is waited for on the loop."""
    return transaction_on(connection, True).locks_store
