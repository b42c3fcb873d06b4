"""`python -m bench.report MIX NOOP`: puts the figures of runs into docs/performance.md.

The files are what `python -m bench.mix --json FILE` and `./scripts/bench --json FILE` wrote; one
alone will do. The mix comes first, as the yardstick; the no-op is a second table. Only what stands
between the marks of the page is replaced.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
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


def body(runs: Sequence[Run], folder: str) -> Iterator[str]:
    """The tables of the mix, those of the no-op, then charts."""
    for run in sorted(runs, key=lambda run: run.mix is None):
        yield "\n### Figures of the mix\n" if run.mix else "\n### Figures of the no-op\n"
        yield from page(run)
    drawn = [name for run in runs for name, _ in charts(run)]
    if drawn:
        yield "\n### Charts\n"
    for name in drawn:
        yield f"![{name}]({folder}/{name}.svg)\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.report", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    given = parser.parse_args(arguments)
    runs = [msgspec.json.decode(path.read_bytes(), type=Run) for path in given.files]
    for run in runs:
        run.checks = checks(run)
    given.page.write_text(replaced(given.page.read_text(), list(body(runs, "charts"))))
    folder = given.page.parent / "charts"
    for old in folder.glob("*.svg"):
        old.unlink()
    drawn = [path for run in runs for path in write_charts(run, folder)]
    for path in (given.page, *drawn):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
