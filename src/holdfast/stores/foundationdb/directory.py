"""The prefix of an installation's keys: that of a directory, as FoundationDB's tools list it.

The binding's directory layer blocks, and needs the client library even to be imported, while an
installation needs one call of it. So `create_or_open` is implemented here, over any transaction, in
the layout of version 1.0.0 that all bindings share:

    \\xfe                                nodes; of a partition, behind its own prefix
    root = \\xfe (\\xfe)                   (...) are tuples, as the tuple layer writes them
    root (version)                      three little-endian numbers
    root (hca, 0, start) -> count       the allocator: how many prefixes of a window are taken
    root (hca, 1, number)               and which
    node = \\xfe (prefix)                 one directory
    node (layer) -> whose it is         node (0, name) -> the prefix of a subdirectory

It gives short prefixes: two or three bytes in every key.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from holdfast.core.errors import StoreError
from holdfast.stores.foundationdb import binding
from holdfast.stores.foundationdb.layout import after
from holdfast.stores.foundationdb.overlay import count_of

LAYER = b"holdfast"
"""The layer of our directories."""
PARTITION = b"partition"
VERSION = (1, 0, 0)
WINDOWS = ((255, 64), (65_535, 1024))
"""Up to which start a window has so many numbers: few at first, so that prefixes are short."""
WINDOW_MAX = 8192

_version = struct.Struct("<III")
_one = struct.pack("<q", 1)
_chance = random.Random()


def pack(*items: bytes | str | int) -> bytes:
    """A tuple as the tuple layer writes it; numbers from 0 on."""
    packed = b""
    for item in items:
        if isinstance(item, int):
            size = (item.bit_length() + 7) // 8
            packed += bytes([0x14 + size]) + item.to_bytes(size, "big")
        else:
            kind, plain = (b"\x02", item.encode()) if isinstance(item, str) else (b"\x01", item)
            packed += kind + plain.replace(b"\0", b"\0\xff") + b"\0"
    return packed


def unpack_number(packed: bytes) -> int:
    """The number that was packed alone."""
    return int.from_bytes(packed[1:], "big")


class Directories:
    """The directories of a cluster, or of a partition of it, in one transaction."""

    def __init__(self, transaction: Any, place: str, content: bytes = b"") -> None:
        self._tr = transaction
        self._place = place
        self._content = content
        self._nodes = content + b"\xfe"
        self._root = self._nodes + pack(self._nodes)

    async def create_or_open(self, path: tuple[str, ...]) -> bytes:
        """The prefix of the directory with this path; creates what is missing.

        Safe to repeat. Of two transactions that create the same one, one fails with a conflict and
        finds it then.
        """
        version = await binding.get(self._tr, self._root + pack(b"version"))
        self._check(version, VERSION[:1])
        node, prefix, layer = self._root, b"", b""
        for depth, name in enumerate(path):
            found = await binding.get(self._tr, node + pack(0, name))
            if found is None:
                self._check(version, VERSION[:2])
                if version is None:
                    self._tr[self._root + pack(b"version")] = _version.pack(*VERSION)
                return await self._create(node, path[depth:])
            node, prefix = self._node(found), found
            layer = await binding.get(self._tr, node + pack(b"layer")) or b""
            if layer == PARTITION and path[depth + 1 :]:
                inner = Directories(self._tr, self._place, prefix)
                return await inner.create_or_open(path[depth + 1 :])
        if layer not in (b"", LAYER):
            raise self._refused(f"the directory is of {layer.decode(errors='replace')!r}, not ours")
        return prefix

    def _check(self, version: bytes | None, known: tuple[int, ...]) -> None:
        """Refuses directories of a newer version; one of a newer minor version may be read."""
        if version is None:
            return
        found = _version.unpack(version)
        if found[: len(known)] > known:
            words = ".".join(map(str, found))
            raise self._refused(f"the directories are of version {words}, newer than is known")

    def _refused(self, why: str) -> StoreError:
        return StoreError(store=self._place, why=why)

    def _node(self, prefix: bytes) -> bytes:
        return self._nodes + pack(prefix)

    async def _create(self, node: bytes, names: tuple[str, ...]) -> bytes:
        """Creates directories, each in the one before; returns the prefix of the last."""
        prefix = b""
        for place, name in enumerate(names):
            prefix = self._content + await self._allocate()
            await self._check_free(prefix)
            self._tr[node + pack(0, name)] = prefix
            node = self._node(prefix)
            self._tr[node + pack(b"layer")] = LAYER if place == len(names) - 1 else b""
        return prefix

    async def _check_free(self, prefix: bytes) -> None:
        """Refuses a prefix under which there are keys, or which is part of another's."""
        taken = await binding.get_range(self._tr, prefix, after(prefix), 1)
        begin, end = self._nodes + pack(prefix), self._nodes + pack(after(prefix))
        inside = await binding.get_range(self._tr.snapshot, begin, end, 1)
        shorter = [self._node(prefix[:length]) + pack(b"layer") for length in range(1, len(prefix))]
        around = [await binding.get(self._tr.snapshot, key) for key in shorter]
        if taken or inside or any(layer is not None for layer in around):
            raise self._refused(f"the next prefix for a directory, {prefix!r}, is in use already")

    async def _allocate(self) -> bytes:
        """A prefix that no other directory gets: a random one of a window that is at most half
        taken, so that transactions that allocate at once rarely conflict.
        """
        tr, hca = self._tr, self._root + pack(b"hca")
        counters, recent = hca + pack(0), hca + pack(1)
        while True:
            start = await self._window(counters, recent)
            while True:
                number = start + _chance.randrange(_size(start))
                key = recent + pack(number)
                latest = await self._latest(counters)
                taken = await binding.get(tr, key)
                tr.options.set_next_write_no_write_conflict_range()
                tr[key] = b""
                if latest > start:
                    break  # Another transaction has opened the next window meanwhile.
                if taken is None:
                    tr.add_write_conflict_key(key)
                    return pack(number)

    async def _window(self, counters: bytes, recent: bytes) -> int:
        """The start of a window that has room, counted as one more taken."""
        tr = self._tr
        start, moved = await self._latest(counters), False
        while True:
            if moved:
                tr.clear_range(counters, counters + pack(start))
                tr.options.set_next_write_no_write_conflict_range()
                tr.clear_range(recent, recent + pack(start))
            tr.add(counters + pack(start), _one)
            count = await binding.get(tr.snapshot, counters + pack(start))
            if 2 * count_of(count or b"") < _size(start):
                return start
            start, moved = start + _size(start), True

    async def _latest(self, counters: bytes) -> int:
        found = await binding.get_range(self._tr.snapshot, counters, after(counters), 1, True)
        return unpack_number(found[0][0][len(counters) :]) if found else 0


def _size(start: int) -> int:
    """How many numbers the window has that starts there."""
    return next((size for end, size in WINDOWS if start < end), WINDOW_MAX)
