"""Style is a test: sizes, banned calls with what to use instead, and tests that say something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "holdfast"
TESTS = ROOT / "tests"

FILE_LINES_MAX = 400
STORE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
POSITIONAL_MAX = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef

EXCUSED = re.compile("fault that is injected|nothing else can be waited for")
"""What a line with a sleep in a test says if it must."""

# What must not be called in src: the name, where it may be all the same, and what to use instead.
BANNED: list[tuple[str, tuple[str, ...], str]] = [
    ("print", ("cli/", "__main__.py"), "a logger, or click.echo in cli/"),
    (
        "time.sleep",
        ("stores/sqlite/connection.py", "cli/demo_jobs.py"),
        "asyncio.sleep, or an Event with a time-out",
    ),
    ("datetime.utcnow", (), "holdfast.core.clock, or datetime.now(tz=UTC)"),
    ("datetime.datetime.utcnow", (), "holdfast.core.clock, or datetime.now(tz=UTC)"),
    ("pickle.loads", ("core/codec.py",), "the codec registry"),
    ("pickle.load", (), "the codec registry"),
    ("eval", (), "plain code"),
    ("exec", (), "plain code"),
    ("asyncio.get_event_loop", (), "asyncio.get_running_loop"),
]


def files(*roots: Path) -> list[Path]:
    return sorted(path for root in roots for path in root.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def place(path: Path, node: Any = None) -> str:
    line = f":{node.lineno}" if node is not None else ""
    return f"{path.relative_to(ROOT)}{line}"


@cache
def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, Function)]


@cache
def calls(node: ast.AST) -> list[tuple[ast.Call, str]]:
    """Every call with the dotted name that is called."""
    found = (each for each in ast.walk(node) if isinstance(each, ast.Call))
    return [(call, dotted(call.func)) for call in found]


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def test_files_are_short() -> None:
    """A file is one idea; a store may be a little longer."""
    long = []
    for path in files(SRC, TESTS):
        store = path.name == "store.py" and path.parent.parent.name == "stores"
        lines = len(path.read_text().splitlines())
        if lines > (STORE_LINES_MAX if store else FILE_LINES_MAX):
            long.append(f"{place(path)}: {lines} lines, split it")
    assert long == []


def test_functions_are_short_and_take_few_arguments() -> None:
    """Past five positional parameters a frozen options value reads better."""
    wrong = []
    for path in files(SRC):
        for node in functions(path):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                wrong.append(f"{place(path, node)} {node.name}: {lines} lines")
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            taken = [name for name in names if name not in ("self", "cls", "mcls")]
            if len(taken) > POSITIONAL_MAX:
                wrong.append(f"{place(path, node)} {node.name}: {len(taken)} positional parameters")
    assert wrong == []


@pytest.mark.parametrize(("name", "allowed", "instead"), BANNED, ids=str)
def test_banned_calls_are_not_made(name: str, allowed: tuple[str, ...], instead: str) -> None:
    """Each has something better; the message names it."""
    found = [
        f"{place(path, call)} {name}(): use {instead}"
        for path in files(SRC)
        if not str(path.relative_to(SRC)).startswith(allowed or ("\0",))
        for call, called in calls(tree(path))
        if called == name
    ]
    assert found == []


def test_now_is_never_asked_without_a_zone() -> None:
    """A naive instant means another moment on every machine."""
    found = [
        f"{place(path, call)} {called}(): say tz=UTC, or use holdfast.core.clock"
        for path in files(SRC)
        for call, called in calls(tree(path))
        if called in ("datetime.now", "datetime.datetime.now") and not call.args + call.keywords
    ]
    assert found == []


def test_no_bare_except() -> None:
    """Whoever catches everything says so: `except BaseException`."""
    found = [
        f"{place(path, node)} except:"
        for path in files(SRC, TESTS)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert found == []


def test_nothing_is_left_to_do_in_comments() -> None:
    """What is not done belongs into an issue."""
    word = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{place(path)}:{number} {line.strip()}"
        for path in files(SRC, TESTS)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word.search(line)
    ]
    assert found == []


def test_every_module_says_what_it_is_for() -> None:
    """Its place in the path of a job, in one sentence. Empty package files need none."""
    silent = [
        place(path)
        for path in files(SRC, TESTS)
        if path.read_text().strip() and not ast.get_docstring(tree(path))
    ]
    assert silent == []


# -- tests ---------------------------------------------------------------------------------------


def each_test(path: Path) -> Iterator[Function]:
    return (node for node in functions(path) if node.name.startswith("test_"))


def files_with_tests() -> list[Path]:
    return files(TESTS, SRC / "testing" / "contract")


def asserts(node: ast.AST) -> bool:
    """Whether it checks something itself."""
    return any(isinstance(each, ast.Assert) for each in ast.walk(node)) or any(
        called in ("pytest.raises", "pytest.fail", "pytest.warns") for _, called in calls(node)
    )


@cache
def last_names(node: ast.AST) -> frozenset[str]:
    """What it calls, without the objects it is called on."""
    return frozenset(called.rpartition(".")[2] for _, called in calls(node))


def checking_helpers() -> set[str]:
    """The names of functions that check something, themselves or by way of another."""
    bodies: dict[str, list[Function]] = {}
    for path in files(TESTS, SRC / "testing"):
        for node in functions(path):
            bodies.setdefault(node.name, []).append(node)
    names = {name for name, nodes in bodies.items() if any(map(asserts, nodes))}
    names |= {name for name in bodies if name.startswith("assert_")}
    while True:
        more = {
            name
            for name, nodes in bodies.items()
            if name not in names and any(names & last_names(node) for node in nodes)
        }
        if not more:
            return names
        names |= more


def test_every_test_checks_something() -> None:
    """By itself or by a helper: a test that cannot fail protects nothing."""
    helpers = checking_helpers()
    idle = [
        f"{place(path, node)} {node.name}"
        for path in files_with_tests()
        for node in each_test(path)
        if not asserts(node) and not helpers & last_names(node)
    ]
    assert idle == []


def test_every_test_says_what_it_protects() -> None:
    """In a docstring whose first line stands by itself."""
    silent = [
        f"{place(path, node)} {node.name}"
        for path in files_with_tests()
        for node in each_test(path)
        if not ast.get_docstring(node)
    ]
    assert silent == []


def test_no_test_sleeps_to_wait() -> None:
    """Events, a manual clock and bounded time-outs; `sleep(0)` only lets others run.

    A sleep that is the injected fault says so on its line; chaos and the command line wait for
    other processes.
    """
    found = []
    for path in files_with_tests():
        if {TESTS / "chaos", TESTS / "cli"} & set(path.parents):
            continue
        lines = path.read_text().splitlines()
        for call, called in calls(tree(path)):
            if called not in ("time.sleep", "asyncio.sleep", "anyio.sleep", "sleep"):
                continue
            zero = (
                bool(call.args)
                and isinstance(call.args[0], ast.Constant)
                and call.args[0].value == 0
            )
            if not zero and not EXCUSED.search(lines[call.lineno - 1]):
                found.append(f"{place(path, call)} {called}: wait for what must happen")
    assert found == []
