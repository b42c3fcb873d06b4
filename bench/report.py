"""`python -m bench.report FILE`: puts the figures of a run into docs/performance.md.

FILE is what `./scripts/bench --json FILE` wrote. Only what stands between the marks is replaced.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.charts import charts, write_charts
from bench.figures import Run
from bench.show import page
from bench.verdict import checks

ROOT = Path(__file__).parent.parent
BEGIN = "<!-- figures: written by `python -m bench.report`, not by hand -->"
END = "<!-- end of figures -->"


class NoMarks(Exception):
    """The page has no place for figures."""


def replaced(text: str, lines: list[str]) -> str:
    """The page with other figures between its marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise NoMarks(f"the page needs the lines {BEGIN!r} and {END!r}")
    return "\n".join([head + BEGIN, *lines, END]) + tail


def body(run: Run, folder: str) -> Iterator[str]:
    """Tables, then charts."""
    yield from page(run)
    yield "\n### Charts\n"
    for name, _ in charts(run):
        yield f"![{name}]({folder}/{name}.svg)\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.report", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    given = parser.parse_args()
    run = msgspec.json.decode(given.file.read_bytes(), type=Run)
    run.checks = checks(run)
    given.page.write_text(replaced(given.page.read_text(), list(body(run, "charts"))))
    folder = given.page.parent / "charts"
    for old in folder.glob("*.svg"):
        old.unlink()
    for path in (given.page, *write_charts(run, folder)):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
