"""Live pages: one poll per second, rendered once, sent to every reader. Without readers no poll.

A message is complete and numbered. A slow reader loses older messages, notices it by the numbers,
and loads its page again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from holdfast.core.errors import HoldfastError, StoreError
from holdfast.dashboard.feed import Feed, Key, Snapshot
from holdfast.dashboard.host import Host, TooManyReaders, always

logger = logging.getLogger("holdfast")

TICK_S = 1.0
REST = 4
"""A poll is followed by a pause of at least this many times its duration."""
READERS_MAX = 100
FEEDS_MAX = 100
"""Maximum number of channels. Those without readers are dropped first."""
STREAM_S = 600.0
"""Maximum time of a connection. The reader then connects and authenticates again."""
ARREARS_MAX = 3

Write = Callable[[Snapshot], str]
"""The live part of the overview."""


class Channel:
    """A feed and its readers."""

    def __init__(self, feed: Feed, host: Host, write: Write) -> None:
        self.feed = feed
        self.readers: set[Reader] = set()
        self._host = host
        self._write = write
        self._task: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()

    def join(self, reader: Reader) -> None:
        self.readers.add(reader)
        self._empty.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._tick())

    def leave(self, reader: Reader) -> None:
        self.readers.discard(reader)
        if not self.readers:
            self._empty.set()

    async def _tick(self) -> None:
        """Polls and sends until there are no readers."""
        number = 0
        try:
            while self.readers and not self._host.closing():
                number += 1
                took = await self._tell(number)
                try:
                    async with asyncio.timeout(max(TICK_S - took, took * REST)):
                        await self._empty.wait()
                except TimeoutError:
                    continue
        except StoreError as error:
            logger.warning("the live pages stopped: %s", error)
        except Exception:
            logger.exception("the live pages stopped")
        finally:
            for reader in self.readers:
                reader.put(None)

    async def _tell(self, number: int) -> float:
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            snapshot = await self.feed.look()
            told = {"jobs": snapshot.changed, "more": snapshot.more, "any": snapshot.any}
            messages = {"": _message("tick", number, {**told, "now": snapshot.now // 1000})}
            if any(reader.topic for reader in self.readers):
                html = self._write(snapshot)
                overview = _message("overview", number, {"html": html, "now": snapshot.now // 1000})
                messages["overview"] = messages[""] + overview
        except HoldfastError as error:
            trouble = _message("trouble", number, {"words": str(error)})
            messages = {"": trouble, "overview": trouble}
        for reader in self.readers:
            reader.put(messages[reader.topic])
        return clock() - started


def _message(event: str, number: int, data: object) -> bytes:
    text = msgspec.json.encode(data)  # JSON contains no line breaks, so one data line is enough.
    return b"event: %s\nid: %d\ndata: %s\n\n" % (event.encode(), number, text)


class Reader:
    """The queue of one live page, with at most a few messages."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue(ARREARS_MAX)

    def put(self, message: bytes | None) -> None:
        if self._messages.full():
            self._messages.get_nowait()
        self._messages.put_nowait(message)

    async def next(self, left_s: float) -> bytes | None:
        """The next message; None at the end, or if none arrives in time."""
        try:
            async with asyncio.timeout(left_s):
                return await self._messages.get()
        except TimeoutError:
            return None


class Hub:
    """All channels of a process."""

    def __init__(self, host: Host, write: Write) -> None:
        self._host = host
        self._write = write
        self._channels: dict[Key, Channel] = {}

    @property
    def readers(self) -> int:
        return sum(len(channel.readers) for channel in self._channels.values())

    def channel(self, key: Key) -> Channel:
        """The channel of this key. A new one replaces the least recently used."""
        found = self._channels.pop(key, None)
        if found is None:
            idle = [each for each, channel in self._channels.items() if not channel.readers]
            if len(self._channels) >= FEEDS_MAX and idle:
                del self._channels[idle[0]]
            found = Channel(Feed(self._host.store, self._host.clock, key), self._host, self._write)
        self._channels[key] = found  # Moved to the end: the order of the dictionary is that of use.
        return found

    def follow(
        self, key: Key, topic: str, standing: Callable[[], Awaitable[bool]] = always
    ) -> AsyncIterator[bytes]:
        """The messages for a new reader, while it is allowed. May raise TooManyReaders."""
        if self.readers >= READERS_MAX:
            raise TooManyReaders(readers=self.readers, retry_after_s=5)
        return self._follow(self.channel(key), Reader(topic), standing)

    async def _follow(
        self, channel: Channel, reader: Reader, standing: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        end = clock() + STREAM_S
        channel.join(reader)
        try:
            yield b"retry: 1000\n\n"
            while (message := await reader.next(end - clock())) is not None and await standing():
                yield message
        finally:
            channel.leave(reader)
