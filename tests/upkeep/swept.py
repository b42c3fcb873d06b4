"""A folder of blobs whose files can be made older, and sweeps of it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from holdfast import BlobRef
from holdfast.config import Config
from holdfast.payload.blobs import Blobs, Shared
from holdfast.payload.bucket import Bucket, open_bucket
from holdfast.payload.holders import Holders
from holdfast.payload.layout import Holder, HolderKind, placed
from holdfast.payload.usage import Usage
from holdfast.testing.contract.bench import Bench
from holdfast.upkeep.sweep import Sweep

GRACE_S = 3600.0
CONFIG = Config(blob_every_s=10.0, blob_grace_s=GRACE_S)


class Hooked(Bucket):
    """A real folder, and a call of the test's in front of the calls of a verb."""

    def __init__(self, real: Bucket) -> None:
        super().__init__(real._objects, real.shown, real._folder)
        self.before: dict[str, Callable[[str], Awaitable[None]]] = {}

    async def _call(self, verb: str, path: str) -> None:
        if verb in self.before:
            await self.before[verb](path)

    async def put(self, path: str, data: bytes) -> None:
        await self._call("put", path)
        await super().put(path, data)

    async def delete(self, path: str) -> None:
        await self._call("delete", path)
        await super().delete(path)


class Shop:
    """A folder of blobs whose files can be made older, and sweeps of it."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.folder = folder
        self.bucket = Hooked(open_bucket(f"file://{folder}"))
        self.holders = Holders(self.bucket, 0.0)
        self.acme = Blobs(Shared(self.bucket, self.holders, Usage(self.bucket, None)), "acme")
        self.sweep = self.a_sweep()

    def a_sweep(self) -> Sweep:
        return Sweep(self.bench.store, self.bucket, CONFIG)

    def age(self, seconds: float = 2 * GRACE_S) -> None:
        """Makes all that there is older."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                at = path.stat().st_mtime - seconds
                os.utime(path, (at, at))

    def age_file(self, path: str) -> None:
        """Makes one object older, if it is there."""
        with suppress(FileNotFoundError):
            os.utime(self.folder / path, (0, 0))

    async def hold(self, ref: BlobRef, name: str, kind: HolderKind = HolderKind.JOB) -> bool:
        return await self.holders.hold(placed("acme", ref.id), Holder("acme", kind, name))

    async def there(self, ref: BlobRef) -> bool:
        return await self.bucket.look(placed("acme", ref.id).path) is not None

    async def look(self, ref: BlobRef) -> bool:
        """Sweeps the part of a blob; returns whether the blob is still there."""
        await self.sweep._parts.look_at(ref.id[5:7])
        return await self.there(ref)

    def files(self, kind: str) -> list[str]:
        return [path.name for path in (self.folder / kind).rglob("*") if path.is_file()]
