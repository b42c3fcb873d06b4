"""Reads a guide: the commands it shows with their output, and what its programs print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

MARK = "# ->"
"""Begins a comment with a line that a program prints."""
_INDENT = re.compile(r" {4,6}(?=\S)")


class Step(msgspec.Struct, frozen=True):
    """A command of a page, and what it says."""

    command: str
    said: str


def prose(page: Path) -> Iterator[str]:
    """The lines outside fenced blocks."""
    fenced = False
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line


def blocks(page: Path) -> Iterator[list[str]]:
    """The indented blocks, without their indent. A blank line ends one."""
    block: list[str] = []
    depth = 0
    for line in [*prose(page), ""]:
        found = _INDENT.match(line)
        if found is not None and not block:
            depth = found.end()
        if found is not None or (block and line.startswith(" " * depth)):
            block.append(line[depth:])
        elif block:
            yield block
            block = []


def steps(page: Path) -> Iterator[Step]:
    """The commands, in order: lines that begin with `$`, and the output that follows them."""
    for block in blocks(page):
        if not block[0].startswith("$ "):
            continue
        command, said = "", list[str]()
        for line in block:
            if line.startswith("$ "):
                if command:
                    yield Step(command, "\n".join(said))
                command, said = line.removeprefix("$ "), []
            else:
                said.append(line.rstrip())
        yield Step(command, "\n".join(said))


def program(page: Path) -> list[str]:
    """The blocks of Python, in order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def printed(page: Path) -> list[str]:
    """What the programs say that they print."""
    lines = "".join(program(page)).splitlines()
    return [line.partition(MARK)[2].strip() for line in lines if MARK in line]
