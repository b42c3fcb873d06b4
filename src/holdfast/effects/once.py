"""Objects that are written once: a repeat, or a worker that was cut off, leaves the first one.

name = object_name(ctx, "receipt.pdf")
if not await put_once(bucket, name, data): ...    # an earlier attempt has written it
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.context import Context
from holdfast.core.errors import InvalidInput, MissingExtra
from holdfast.stores.callers import package_of

OBJECT_NAME_MAX = 512
"""Characters of the name of an object."""
OWNER_ONLY = 0o600


def object_name(ctx: Context[Any], name: str) -> str:
    """A name for an object of this job: the same in every attempt, different for any other job."""
    return check_name(f"{ctx.effect_key}/{name}")


async def put_once(place: Any, name: str, data: bytes) -> bool:
    """Writes an object unless there is one of this name; whether it did. All of it is there then,
    or nothing. `place` is a store of obstore, or the path of a folder.
    """
    check_name(name)
    if isinstance(place, str | os.PathLike):
        return await asyncio.to_thread(_write_file, Path(place), name, data)
    obstore = _obstore(place)
    try:
        await obstore.put_async(place, name, data, mode="create")
    except obstore.exceptions.AlreadyExistsError:
        return False
    return True


def put_once_sync(place: Any, name: str, data: bytes) -> bool:
    """As `put_once`, for blocking code."""
    check_name(name)
    if isinstance(place, str | os.PathLike):
        return _write_file(Path(place), name, data)
    obstore = _obstore(place)
    try:
        obstore.put(place, name, data, mode="create")
    except obstore.exceptions.AlreadyExistsError:
        return False
    return True


def check_name(name: str) -> str:
    """A relative path that stays below its folder."""
    parts = PurePosixPath(name).parts
    wrong = not parts or name.startswith("/") or "." in name.split("/") or ".." in parts
    if wrong or len(name) > OBJECT_NAME_MAX or not name.isprintable() or "\\" in name:
        why = f"must be a relative path of at most {OBJECT_NAME_MAX} characters, got {name!r:.100}"
        raise InvalidInput(field="name", why=why)
    return name


def _obstore(place: Any) -> Any:
    if package_of(place) != "obstore":
        kind = f"{type(place).__module__}.{type(place).__qualname__}"
        why = f"is a {kind}; must be a store of obstore or the path of a folder"
        raise InvalidInput(field="place", why=why)
    try:
        import obstore  # type: ignore[import-not-found,unused-ignore]
        import obstore.exceptions  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError as error:
        raise MissingExtra(
            field="place", what="an object store", package=error.name, extra="blob"
        ) from None
    return obstore


def _write_file(folder: Path, name: str, data: bytes) -> bool:
    """The file appears under its name when all of it is on the disk: a link refuses a name that is
    taken, where renaming would replace it.
    """
    target = folder / name
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    file = os.open(draft, flags, OWNER_ONLY)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, target)
        except FileExistsError:
            return False
        _sync(target.parent)
        return True
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _sync(folder: Path) -> None:
    """Makes the new name durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
