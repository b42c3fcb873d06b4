"""The Lua scripts, one for each verb: the parts of the library it needs, then its own text."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

import msgspec

from holdfast.clock import micros
from holdfast.limits import CLAIM_REPEAT_S
from holdfast.stores.redis import layout

_OPEN = ("ground", "facts", "row")
"""Their locals are known to all that follows."""
_QUICK = {"claim": "idle", "enqueue": "single"}
"""What is tried before the rest is made, and may end the script: for most enqueues, and the claims
of idle workers. The server runs 0.4 instead of 1.0 million instructions for a single enqueue, 0.5
instead of 1.1 million for a claim of one job (callgrind): about half of that is making the parts.
"""
_BASE = ("log", "rows", "packs", "packing", "counts", "gates", "lines", "groups", "jobs")
_PARTS: dict[str, tuple[str, ...]] = {
    "again": (*_BASE, "take"),
    "ack": (*_BASE, "rules", "plain", "pieces"),
    "cancel": _BASE,
    "change": (*_BASE, "walk"),
    "claim": (*_BASE, "repair", "plain", "pieces", "take"),
    "count": (*_BASE, "repair"),
    "enqueue": (*_BASE, "plain"),
    "events": _BASE,
    "expired": (*_BASE, "rules"),
    "explain": (*_BASE, "repair"),
    "extend": (*_BASE, "rules"),
    "find": (*_BASE, "walk"),
    "history": _BASE,
    "hold": _BASE,
    "migrate": _BASE,
    "peek": (*_BASE, "repair"),
    "prune": _BASE,
    "recount": _BASE,
    "replay": _BASE,
    "serve": (*_BASE, "plain", "pieces", "take"),
    "settings": _BASE,
    "soonest": ("rows", "packs", "packing", "lines"),
}


class Script(msgspec.Struct, frozen=True):
    name: str
    text: bytes
    sha: str


def script(name: str) -> Script:
    """The script of a verb. Redis knows it by its hash, so a new version never meets an old one."""
    return _script(name, layout.PACK_MAX, layout.STEM_SIZE, layout.FORMAT)


@cache
def _script(name: str, pack_max: int, stem_size: int, format: int) -> Script:
    # A part is a function of its own: a chunk of Lua has 200 locals at most, and each new function
    # looks for those it uses among all that are open: 11 to 25 % of the instructions of a call
    # with one job (callgrind).
    parts = (f"(function()\n{_part(part)}\nend)()" for part in _PARTS[name])
    quick = [f"do\n{_bare(_QUICK[name])}\nend"] if name in _QUICK else []
    numbers = (
        f"local PACK_MAX, STEM_SIZE, REPEAT_US = {pack_max}, {stem_size}, {micros(CLAIM_REPEAT_S)}"
        f"\nlocal LAYOUT, MIGRATES = '{format}', {'true' if name == 'migrate' else 'false'}"
    )
    opening = (numbers, *map(_part, _OPEN), *quick, _part("core"))
    text = "\n;".join((*opening, *parts, _bare(name))).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def _part(name: str) -> str:
    return _bare(f"lib_{name}")


def _bare(file: str) -> str:
    """Without whole-line comments: they are for people, and would be sent to every server."""
    folder = resources.files("holdfast.stores.redis").joinpath("lua")
    text = folder.joinpath(f"{file}.lua").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
