"""A bucket: where blobs are. A folder, memory, S3, Google Cloud Storage or Azure, by obstore.

`file:///var/lib/blobs`, `memory://`, `s3://bucket/prefix?region=eu-west-1`, `gs://bucket/prefix`,
`az://container/prefix?account=name`. Credentials come from the environment or the machine's role,
as the providers' own tools find them. Errors of obstore are turned into ours here and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.core.clock import Micros, instant
from holdfast.core.edge_bounds import BLOB_CALL_S, BLOB_CHUNK, BLOB_NAP_S, BLOB_PART, BLOB_PARTS_MAX
from holdfast.core.errors import BlobsUnavailable, ConfigError, MissingExtra, did_you_mean

T = TypeVar("T")

OPTIONS: dict[str, dict[str, str]] = {
    "file": {},
    "memory": {},
    "s3": {"region": "region", "endpoint": "endpoint", "skip_signature": "skip_signature"},
    "gs": {"skip_signature": "skip_signature"},
    "az": {"account": "account_name", "endpoint": "endpoint", "skip_signature": "skip_signature"},
}
"""The options of the URL of each kind, and what obstore calls them."""
TRIES_MAX = 3
"""How often obstore repeats a failed request, within BLOB_CALL_S."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What a bucket says about one object."""

    path: str
    size: int
    at: Micros
    """When it was written, by the bucket's clock."""


class Bucket:
    """One bucket, or the part of it under a prefix. Safe to use from several event loops."""

    def __init__(self, objects: Any, shown: str, folder: Path | None = None) -> None:
        self._objects = objects
        self.shown = shown
        """Its URL without options, for errors."""
        self._folder = folder

    async def put(self, path: str, data: bytes) -> None:
        """Stores a small object. An existing one is replaced."""
        with self._there():
            await self._small("put", path, data, use_multipart=False)
        await self._synced(path)

    async def put_once(self, path: str, data: bytes) -> bytes:
        """Stores a small object unless there is one; returns what is stored then."""
        try:
            with self._there():
                await self._small("put", path, data, mode="create", use_multipart=False)
        except FileExistsError:
            return await self.read(path) or b""
        await self._synced(path)
        return data

    async def read(self, path: str) -> bytes | None:
        """A small object; None if there is none."""
        opened = await self.open(path)
        return None if opened is None else b"".join([chunk async for chunk in opened[1]])

    async def put_stream(self, path: str, data: AsyncIterator[bytes]) -> None:
        """Stores an object as a whole, or nothing if the iterator raises."""
        put = self._objects.put_async(
            path, data, use_multipart=True, chunk_size=BLOB_PART, max_concurrency=BLOB_PARTS_MAX
        )
        with self._there():
            await self._done(put, None)
        await self._synced(path)

    async def look(self, path: str) -> Stored | None:
        """What there is under a path."""
        with suppress(FileNotFoundError):
            return _stored(await self._small("head", path))
        return None

    async def open(self, path: str) -> tuple[Stored, AsyncIterator[bytes]] | None:
        """An object and its bytes, in chunks of at most BLOB_CHUNK."""
        try:
            found = await self._done(self._objects.get_async(path), BLOB_CALL_S)
        except FileNotFoundError:
            return None
        return _stored(found.meta), self._chunks(found)

    async def _chunks(self, found: Any) -> AsyncIterator[bytes]:
        stream = aiter(found.stream(min_chunk_size=BLOB_CHUNK))
        while True:
            try:
                chunk = await self._done(anext(stream), BLOB_NAP_S)
            except StopAsyncIteration:
                return
            whole = memoryview(chunk)
            for at in range(0, len(whole), BLOB_CHUNK):
                yield bytes(whole[at : at + BLOB_CHUNK])

    async def delete(self, path: str) -> None:
        """Deletes an object. One that there is not is not missed."""
        with suppress(FileNotFoundError):
            await self._small("delete", path)

    async def under(self, prefix: str, page: int) -> AsyncIterator[list[Stored]]:
        """Pages of the objects under a prefix, in no order."""
        listing = self._objects.list(prefix, chunk_size=page)
        while found := await self._page(listing):
            yield [_stored(each) for each in found]

    async def any_under(self, prefix: str) -> bool:
        """Whether there is anything under a prefix."""
        return bool(await self._page(self._objects.list(prefix, chunk_size=1)))

    async def _page(self, listing: Any) -> Any:
        try:
            if _blocking():
                return self._here(lambda: next(listing))
            return await self._done(anext(listing), BLOB_NAP_S)
        except (StopAsyncIteration, StopIteration, FileNotFoundError):
            return ()

    @contextmanager
    def _there(self) -> Iterator[None]:
        """Nothing is missed by a put but the bucket itself."""
        try:
            yield
        except FileNotFoundError as error:
            raise self._away(_short(error)) from error

    async def _synced(self, path: str) -> None:
        """Makes a file durable: an enqueue that returned is kept (P1). Other buckets do so."""
        if self._folder is None:
            return
        if _blocking():
            _sync(self._folder, self._folder / path)
        else:
            await asyncio.to_thread(_sync, self._folder, self._folder / path)

    async def _small(self, verb: str, *given: Any, **more: Any) -> Any:
        """One small call. It blocks where there is no event loop: an enqueue in a transaction of a
        blocking connection runs its coroutine without one.
        """
        if _blocking():
            return self._here(lambda: getattr(self._objects, verb)(*given, **more))
        call = getattr(self._objects, f"{verb}_async")(*given, **more)
        return await self._done(call, BLOB_CALL_S)

    def _here(self, call: Callable[[], T]) -> T:
        _check_fork(self.shown)
        try:
            return call()
        except (FileNotFoundError, FileExistsError, StopIteration):
            raise
        except self._kinds() as error:
            raise self._mapped(error) from error

    async def _done(self, call: Awaitable[T], most_s: float | None) -> T:
        _check_fork(self.shown)
        try:
            async with asyncio.timeout(most_s):
                return await call
        except (FileNotFoundError, FileExistsError, StopAsyncIteration):
            raise
        except TimeoutError as error:
            why = _short(error) if most_s is None else f"no answer in {most_s:g} s"
            raise self._away(why) from None
        except self._kinds() as error:
            raise self._mapped(error) from error

    def _mapped(self, error: BaseException) -> Exception:
        from obstore.exceptions import AlreadyExistsError

        if isinstance(error, AlreadyExistsError):
            return FileExistsError(_short(error))
        return self._away(_short(error))

    def _away(self, why: str) -> BlobsUnavailable:
        return BlobsUnavailable(bucket=self.shown, why=why)

    def _kinds(self) -> tuple[type[BaseException], ...]:
        from obstore.exceptions import BaseError

        return (BaseError, OSError)


_began: int | None = None
"""The process that used a bucket first."""


def _check_fork(shown: str) -> None:
    """The threads of obstore do not survive a fork: a call in the child would wait for ever."""
    global _began  # noqa: PLW0603
    if _began is None:
        _began = os.getpid()
    elif _began != os.getpid():
        why = "it was used before this process was forked; use blobs only after the fork"
        raise BlobsUnavailable(bucket=shown, why=why)


def _blocking() -> bool:
    return asyncio._get_running_loop() is None


def _short(error: BaseException) -> str:
    """The first line of an error: obstore adds its own structures in further ones."""
    return str(error).strip().split("\n", 1)[0][:500]


def _stored(meta: Any) -> Stored:
    return Stored(meta["path"], meta["size"], instant(meta["last_modified"]))


def _sync(folder: Path, file: Path) -> None:
    """Makes a file and the folders above it durable."""
    for path in (file, *file.parents):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path == folder:
            return


# -- by URL ----------------------------------------------------------------------------------------


def open_bucket(url: str) -> Bucket:
    """The bucket of a URL. Raises ConfigError, which says what is wrong, and MissingExtra."""
    split = urlsplit(url)
    kind = split.scheme
    if kind not in OPTIONS:
        known = ", ".join(f"{name}://" for name in OPTIONS)
        raise _wrong(
            f"no bucket is at {kind or url!r} (known: {known}).{did_you_mean(kind, OPTIONS)}"
        )
    if "@" in split.netloc:
        raise _wrong("credentials belong into the environment, not into the URL")
    options = _options(kind, split.query)
    try:
        import obstore.store as kinds
    except ModuleNotFoundError as error:
        raise MissingExtra(
            field="blobs", what=f"{kind}://", package=error.name, extra="blob"
        ) from None
    shown = f"{kind}://{split.netloc}{split.path}"
    if kind == "memory":
        return Bucket(kinds.MemoryStore(), shown)
    if kind == "file":
        return _folder(kinds, split.netloc, unquote(split.path), shown)
    if not split.netloc:
        raise _wrong(f"names no bucket: {kind}://NAME/PREFIX")
    try:
        return Bucket(_remote(kinds, kind, f"{kind}://{split.netloc}{split.path}", options), shown)
    except Exception as error:
        raise _wrong(_short(error)) from error


def _options(kind: str, query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS[kind]:
            raise _wrong(f"{kind}:// has no option {name!r}.{did_you_mean(name, OPTIONS[kind])}")
        found[OPTIONS[kind][name]] = value
    return found


def _folder(kinds: Any, host: str, path: str, shown: str) -> Bucket:
    if host or not path.startswith("/") or path == "/":
        raise _wrong("a folder needs its whole path: file:///var/lib/blobs")
    if "\x00" in path:
        raise _wrong("has a null character")
    folder = Path(os.path.normpath(path))
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _wrong(f"{folder} cannot be made: {error.strerror}") from error
    return Bucket(kinds.LocalStore(folder, automatic_cleanup=True), shown, folder)


def _remote(kinds: Any, kind: str, url: str, options: dict[str, str]) -> Any:
    opened: Callable[..., Any] = {
        "s3": kinds.S3Store, "gs": kinds.GCSStore, "az": kinds.AzureStore,
    }[kind].from_url  # fmt: skip
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=5),
        # A whole blob may take long, but not the next bytes of it.
        "timeout": timedelta(days=1),
        "read_timeout": timedelta(seconds=BLOB_NAP_S),
    }
    if options.get("endpoint", "").startswith("http://"):
        client["allow_http"] = True
    retry = {"max_retries": TRIES_MAX, "retry_timeout": timedelta(seconds=BLOB_CALL_S / 2)}
    return opened(url, client_options=client, retry_config=retry, **options)


def _wrong(why: str) -> ConfigError:
    return ConfigError(field="blobs", why=why)
