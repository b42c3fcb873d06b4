"""The Lua scripts, one for each verb: the parts of the library it needs, then its own text."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

import msgspec

_OPEN = ("core", "row")
"""Their locals are known to all that follows."""
_BASE = ("log", "rows", "counts", "gates", "lines", "groups", "jobs")
_PARTS: dict[str, tuple[str, ...]] = {
    "ack": ("rules", "plain"),
    "cancel": (),
    "change": ("walk",),
    "claim": ("repair", "plain", "take"),
    "count": ("repair",),
    "enqueue": ("plain",),
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
    # A part is a function of its own: a chunk of Lua has 200 locals at most, and each new function
    # looks for those it uses among all that are open: 11 to 25 % of the instructions of a call
    # with one job (callgrind).
    parts = (f"(function()\n{_part(part)}\nend)()" for part in (*_BASE, *_PARTS[name]))
    text = "\n;".join((*map(_part, _OPEN), *parts, _bare(name))).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def _part(name: str) -> str:
    return _bare(f"lib_{name}")


def _bare(file: str) -> str:
    """Without whole-line comments: they are for people, and would be sent to every server."""
    folder = resources.files("holdfast.stores.redis").joinpath("lua")
    text = folder.joinpath(f"{file}.lua").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
