"""The Lua scripts: one for each verb, assembled from the libraries and the verb's own file.

Each call of a script runs its whole text, so every function that the text defines costs time in
every call. Hence a library (`lua/lib_<name>.lua`) is one function that runs when a script first
uses its table `<name>`: a call pays only for the libraries that it uses. `base` and `writes` are
used by all.

Constants that Python and Lua share are defined here or in Python's core, and replaced in the text.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources

import msgspec

from holdfast.core.bounds import (
    ASIDE_MAX,
    CLAIM_REPEAT_S,
    COPIES_MAX,
    EDGES_MAX,
    ENTRY_NAME_MAX,
    KEEP_AGAIN_S,
    LEASE_JOURNAL_MAX,
    LOGS_MAX,
    PERMIT_LIFE_S,
    RELEASE_MAX,
    REPAIR_MAX,
    REPAIR_PASSES_MAX,
    SIGNALS_MAX,
    SIGNALS_SHARE,
    STEPS_BYTES_MAX,
    STEPS_MAX,
)
from holdfast.core.clock import micros
from holdfast.core.job import Reason, State
from holdfast.core.scope import LINE_JOBS, LINES_PER_CLAIM
from holdfast.stores.redis import layout
from holdfast.stores.redis.journal import EDGES_PART
from holdfast.stores.redis.rows import (
    EVENT_SIZE,
    FIXED_SIZE,
    FLAGS,
    HEAD_SIZE,
    LENGTH_SIZE,
    REASON_CODES,
    REASONS,
    STATE_CODES,
    STATES,
)

ROW_HEAD = "BBBI4I4I4I2I2dddddddHc0Hc0"
"""State, flags, reason; attempt, fence, lapses, more flags, misses; priority, created, updated,
run_at, expires, lease, last; nonce and worker. In the notation of Lua's struct.
"""
ROW_FIXED = "I4ddddHc0Hc0Hc0Hc0Hc0Hc0"
"""max_attempts, keep, keep_failed, key_us, size; tenant, id, queue, type, group, key."""

VERBS = (
    "ack",
    "cancel",
    "change",
    "claim",
    "claim_candidates",
    "copies",
    "count",
    "enqueue",
    "events",
    "expired",
    "explain",
    "extend",
    "find",
    "hold",
    "job_events",
    "migrate",
    "platform",
    "prune",
    "recount",
    "replay",
    "scopes",
    "settings",
    "shadow",
    "signal",
    "wait",
)
LIBRARIES = (
    "events",
    "rows",
    "values",
    "counts",
    "limits",
    "groups",
    "lines",
    "turns",
    "fairness",
    "keys",
    "index",
    "rules",
    "repair",
    "leasing",
    "repeats",
    "selection",
    "admission",
    "tiers",
    "copies",
    "relook",
    "platform",
    "aside",
    "resume",
    "shares",
    "forecast",
    "ledger",
    "permits",
    "journal",
    "sizes",
    "joins",
    "targets",
    "edges",
    "shadow",
)

_CONSTANTS: dict[str, str] = {
    **{state.name: str(code) for state, code in STATE_CODES.items()},
    # Of the states, those from here on are final.
    "ENDED": str(STATE_CODES[State.COMPLETED]),
    # The place of the bytes in the counts of a scope, after the states.
    "BYTES": str(len(STATES) + 1),
    "REASON_NAMES": "{" + ", ".join(f"'{reason.value}'" for reason in REASONS) + "}",
    "REASON_MAX_ATTEMPTS": str(REASON_CODES[Reason.MAX_ATTEMPTS]),
    "REASON_PARENT_FAILED": str(REASON_CODES[Reason.PARENT_FAILED]),
    **{name: str(flag) for name, flag in FLAGS.items()},
    # A row is a head, then the fixed part that Python packed; see layout.py.
    "ROW_HEAD": f"'>{ROW_HEAD}'",
    "ROW_FIXED": f"'>{ROW_FIXED}'",
    "ROW_CHANGED": f"'>{ROW_HEAD}c0'",
    # Bytes of the fixed part without its texts.
    "FIXED_SIZE": str(FIXED_SIZE),
    "ROW_FORMAT": f"'>{ROW_HEAD}{ROW_FIXED}'",
    # Where the fixed part of a row starts, if nonce and worker are empty.
    "ROW_HEAD_SIZE": str(HEAD_SIZE + 2 * LENGTH_SIZE + 1),
    "COUNTS_FORMAT": f"'>{'d' * (len(STATES) + 1)}'",
    "NO_COUNTS": "'" + "\\0" * 8 * (len(STATES) + 1) + "'",
    "EVENT_SIZE": str(EVENT_SIZE),
    "UNLIMITED": str(1 << 52),
    "LINES_PER_CLAIM": str(LINES_PER_CLAIM),
    "LINE_JOBS": str(LINE_JOBS),
    "ASIDE_MAX": str(ASIDE_MAX),
    "COPIES_MAX": str(COPIES_MAX),
    # The name of the scope that is the whole store.
    "WHOLE_STORE": "'p\\0\\0'",
    "REPAIR_MAX": str(REPAIR_MAX),
    "REPAIR_PASSES_MAX": str(REPAIR_PASSES_MAX),
    "PERMIT_LIFE_US": str(micros(PERMIT_LIFE_S)),
    "CLAIM_REPEAT_US": str(micros(CLAIM_REPEAT_S)),
    "KEEP_AGAIN_US": str(micros(KEEP_AGAIN_S)),
    "STEPS_MAX": str(STEPS_MAX),
    "STEPS_BYTES_MAX": str(STEPS_BYTES_MAX),
    "SIGNALS_MAX": str(SIGNALS_MAX),
    "SIGNALS_SHARE": str(SIGNALS_SHARE),
    "LEASE_JOURNAL_MAX": str(LEASE_JOURNAL_MAX),
    "ENTRY_NAME_MAX": str(ENTRY_NAME_MAX),
    "LOGS_MAX": str(LOGS_MAX),
    "RELEASE_MAX": str(RELEASE_MAX),
    "EDGES_MAX": str(EDGES_MAX),
    "EDGES_PART": str(EDGES_PART),
}

_LIBRARY = """
local load
local library = setmetatable({}, {__index = function(loaded, name)
  load(name)
  return rawget(loaded, name)
end})
"""
_LOAD = """
function load(name)
%s
end
"""
_BRANCH = """
if name == '%s' then
library.%s = %s
%s
return
end
"""
_VERB = """
local function verb()
%s
end
return verb()
"""
"""A function, because Lua searches all local variables of the script for each one that a function
of the script's outermost level uses.
"""
_USE = re.compile(rf"(?<![\w.'])({'|'.join(LIBRARIES)})\.(?=\w)")
"""The use of a library: `rows.get` becomes `library.rows.get`."""


class Script(msgspec.Struct, frozen=True):
    name: str
    text: bytes
    sha: str


def script(name: str) -> Script:
    """The script of a verb. Redis knows it by its hash, so a new version never meets an old one."""
    return _script(name, layout.FORMAT)


@cache
def _script(name: str, format: int) -> Script:
    libraries = (_branch(each, _file(f"lib_{each}")) for each in LIBRARIES)
    base, writes = _file("lib_base"), _file("lib_writes")
    parts = [
        f"local base = {_table('base', base + writes)}",
        base,
        _LIBRARY,
        writes,
        _LOAD % "".join(libraries),
        _VERB % _file(name),
    ]
    of_script = {"LAYOUT": str(format), "MIGRATES": str(name == "migrate").lower()}
    constants = {**_CONSTANTS, **of_script}
    pattern = re.compile(rf"\b({'|'.join(constants)})\b")
    text = pattern.sub(lambda found: constants[found[1]], "\n".join(parts)).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def _branch(library: str, text: str) -> str:
    return _BRANCH % (library, library, _table(f"library.{library}", text), text)


def _table(name: str, text: str) -> str:
    """A table with room for the functions that a text adds to it: one that grows is copied."""
    functions = re.findall(rf"^function {name}\.(\w+)", text, re.MULTILINE)
    return "{" + ", ".join(f"{each} = nil" for each in functions) + "}"


def _file(name: str) -> str:
    """Without whole-line comments: they are for people, and would be sent to every server."""
    folder = resources.files("holdfast.stores.redis").joinpath("lua")
    text = folder.joinpath(f"{name}.lua").read_text("utf-8")
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return _USE.sub(r"library.\1.", "\n".join(lines))
