"""The Lua scripts, one for each verb: the parts of the library it needs, then its own text."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

import msgspec

_BASE = ("core", "log", "rows", "counts", "gates", "lines", "groups", "jobs")
_PARTS: dict[str, tuple[str, ...]] = {
    "ack": ("rules", "plain"),
    "cancel": (),
    "change": ("walk",),
    "claim": ("repair", "plain", "take"),
    "count": ("repair",),
    "enqueue": (),
    "events": (),
    "expired": ("rules",),
    "explain": ("repair",),
    "extend": ("rules",),
    "find": ("walk",),
    "history": (),
    "hold": (),
    "peek": ("repair",),
    "prune": (),
    "recount": (),
    "replay": (),
    "serve": ("plain", "take"),
    "settings": (),
    "soonest": (),
}


class Script(msgspec.Struct, frozen=True):
    name: str
    text: bytes
    sha: str


@cache
def script(name: str) -> Script:
    """The script of a verb. Redis knows it by its hash, so a new version never meets an old one."""
    files = [f"lib_{part}" for part in (*_BASE, *_PARTS[name])] + [name]
    folder = resources.files("holdfast.stores.redis").joinpath("lua")
    texts = [folder.joinpath(f"{file}.lua").read_text("utf-8") for file in files]
    text = "\n".join(_bare(each) for each in texts).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def _bare(text: str) -> str:
    """Without whole-line comments: they are for people, and would be sent to every server."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
