"""How the code reads a source: its functions give pages, each within its time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec

from holdfast.context import Context
from holdfast.core.errors import SourceError
from holdfast.core.source import Page

FETCH_S = 60.0
"""The time-out of one page, by default."""

Fetch = Callable[[Context, Any], Any]
"""The function of the code: an async function that returns a page, an async generator of pages, or
a plain function that returns a page.
"""


class Reader(msgspec.Struct, frozen=True):
    """How the code reads a source."""

    name: str
    fetch: Fetch
    listing: Fetch
    """Reads all of it, from the beginning; the same function by default."""
    page_timeout: float = FETCH_S

    async def pages(
        self, ctx: Context, fetch: Fetch, cursor: Callable[[], Any]
    ) -> AsyncGenerator[Page]:
        """The pages that the code gives, each within its time; without an end."""
        if not inspect.isasyncgenfunction(fetch):
            while True:
                if inspect.iscoroutinefunction(fetch):
                    call = fetch(ctx, cursor())
                else:
                    call = asyncio.to_thread(fetch, ctx, cursor())
                yield self._checked(await self._timed(call))
        async with aclosing(fetch(ctx, cursor())) as pages:
            last: Page | None = None
            while True:
                page = await self._timed(anext(pages, None))
                if page is None and last is not None and last.more:
                    why = "the generator ended after a page that said that there is more"
                    raise SourceError(source=self.name, why=why)
                last = Page((), more=False) if page is None else self._checked(page)
                yield last

    async def _timed(self, call: Any) -> Any:
        limit = self.page_timeout
        try:
            async with asyncio.timeout(limit) as timeout:
                return await call
        except TimeoutError:
            if not timeout.expired():
                raise
            why = f"a page took longer than {limit:g} s"
            raise SourceError(source=self.name, why=why) from None

    def _checked(self, page: object) -> Page:
        if not isinstance(page, Page):
            why = f"gave {type(page).__name__}, must be holdfast.sources.Page"
            raise SourceError(source=self.name, why=why)
        return page
