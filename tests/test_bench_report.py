"""Figures become tables, charts and a page; nothing else of the page is touched."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from bench import show, table
from bench.charts import Bar, Line, bars, charts, lines, write_charts
from bench.figures import Check, Depth, Figures, Load, Peer, Peers, Run, Scale, middle, quantile
from bench.mix.figures import Cell, Entry, Mix, Row
from bench.report import BEGIN, END, NoMarks, body, main, replaced
from bench.rules import Drained
from bench.stores import Cost

ROOT = Path(__file__).parent.parent


def _run() -> Run:
    """With something in every table."""
    store = Figures(
        store="redis",
        version="7",
        single=[1.0],
        drain=[40_000.0, 50_000.0, 60_000.0],
        load=[Load(per_s=10.0, p50_ms=1.0, p99_ms=2.0)],
        depth=[
            Depth(queued=number, per_s=100.0, worker_mb=50.0, engine_mb=1.0)
            for number in (10_000, 1_000_000)
        ],
        growth=[Cost("1,000 queued", 10.0), Cost("1,000,000 queued", 12.0)],
        rules=[Drained("none", 100.0, 0.0), Drained("rate", 90.0, 0.1)],
        scaling=[Scale(processes=n, per_s=n * 10.0, worker_us=20.0) for n in (1, 2)],
        failed={"pickup": "Failed: <why>"},
    )
    peers = Peers(
        rows=[
            Peer(name="holdfast_redis", engine="redis", drain=[50_000.0]),
            Peer(name="dramatiq", engine="redis", drain=[4_000.0], pinned=[9_000.0]),
            Peer(name="arq", engine="redis", not_run="not run: could not install"),
        ],
        ceilings={"Lua claim 100 with lease + ack 100": [100_000.0]},
    )
    check = Check(what="Redis: drain", value=5.5, target=5, against="dramatiq")
    return Run(made={"date": "today"}, stores=[store], peers=peers, checks=[check])


def test_a_run_is_read_from_json_as_it_was_written() -> None:
    """The page is made long after the run."""
    run = _run()

    assert msgspec.json.decode(msgspec.json.encode(run), type=Run) == run


def test_every_table_has_its_figures() -> None:
    """Medians, with thousands apart; failures are told with their reason."""
    told = "\n".join(show.text(_run()))

    for words in ("50,000", "9,000", "1,000,000 queued", "-10 %", "met", "Failed: <why>"):
        assert words in told
    assert len(list(show.tables(_run()))) == 9


def test_a_table_of_nothing_is_not_shown() -> None:
    """A run of one measure shows one table."""
    run = Run(made={}, stores=[Figures(store="redis", load=[Load(per_s=1, p50_ms=1, p99_ms=1)])])

    titles = [one.title for one in show.tables(run)]

    assert titles == ["Holdfast on each store", "Waits at 50 % load"]


def test_the_page_keeps_all_but_the_figures() -> None:
    """However often the report is made."""
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n"

    once = replaced(page, ["new"])

    assert once == f"# Title\n\n{BEGIN}\nnew\n{END}\n\nThe end.\n"
    assert replaced(once, ["new"]) == once
    with pytest.raises(NoMarks):
        replaced("# Title\n", ["new"])


def test_the_page_of_this_project_has_a_place_for_figures() -> None:
    """And the tables of a run fit into it."""
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")

    assert "| Redis: drain | 5.50 |" in replaced(page, list(body([_run()], "charts")))


def test_the_mix_comes_before_the_no_op(tmp_path: Path) -> None:
    """In whatever order the files are named; either alone will do. Other charts are gone."""
    cell = Cell(store="redis", tenants=20, concurrency=10, limits=True)
    row = Row(contestant="holdfast", cell=cell, drain=[7_000.0], failed=["failed: why"])
    mix = Run(
        made={"date": "today"},
        sizes={"limits": [False, True], "tenants": [20, 1000]},
        mix=Mix(rows=[row], stores={"redis": "7"}, entries=[Entry(name="holdfast", version="1")]),
    )
    page, files = tmp_path / "page.md", [tmp_path / "noop.json", tmp_path / "mix.json"]
    page.write_text(f"{BEGIN}\n{END}\n")
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "old.svg").touch()
    for path, run in zip(files, (_run(), mix), strict=True):
        path.write_bytes(msgspec.json.encode(run))

    main([*map(str, files), "--page", str(page)])

    told = page.read_text()
    assert told.index("### Figures of the mix") < told.index("#### The mix on redis")
    assert told.index("#### The mix on redis") < told.index("### Figures of the no-op")
    assert "- sizes: limits without and with, tenants 20 and 1,000" in told
    assert "| holdfast | 20 | 10 | with |  | 7,000 |" in told
    assert "Not measured: holdfast, redis, 20 tenants, concurrency 10, limits: failed: why." in told
    assert not (tmp_path / "charts" / "old.svg").exists()
    main([str(files[1]), "--page", str(page)])
    assert "no-op" not in page.read_text()


def test_charts_are_whole_svg(tmp_path: Path) -> None:
    """Each can be read by a strict reader, and shows every name."""
    written = write_charts(_run(), tmp_path)

    assert {path.stem for path in written} == {name for name, _ in charts(_run())}
    for path in written:
        root = ElementTree.parse(path).getroot()
        assert root.tag.endswith("svg")
        assert "prefers-color-scheme: dark" in path.read_text()
    assert "dramatiq" in (tmp_path / "drain-redis.svg").read_text()


def test_a_bar_is_as_long_as_its_value_says() -> None:
    """Names are escaped: a rule may be called anything."""
    root = ElementTree.fromstring(bars("t", "u", [Bar("a<b", 100.0), Bar("c", 50.0)]))

    widths = [
        float(each.attrib["width"])
        for each in root.iter("{http://www.w3.org/2000/svg}rect")
        if each.get("class") == "other"
    ]
    assert widths[0] == pytest.approx(2 * widths[1])


def test_labels_of_lines_do_not_cover_each_other() -> None:
    """Two lines that end at one place."""
    points = [(1.0, 5.0), (2.0, 10.0)]
    root = ElementTree.fromstring(lines("t", "u", [Line("one", points), Line("two", points)]))

    heights = {
        each.text: float(each.attrib["y"]) for each in root.iter("{http://www.w3.org/2000/svg}text")
    }
    assert abs(heights["one"] - heights["two"]) >= 15


def test_columns_are_as_wide_as_their_widest() -> None:
    """Names to the left, figures to the right."""
    shown = list(table.lines(("name", "per s"), [("a", "1"), ("longer", "1,000,000")]))

    assert shown == ["name        per s", "a               1", "longer  1,000,000"]


def test_middles_and_quantiles() -> None:
    """Of an odd number, of one, and of none."""
    assert middle([3.0, 1.0, 2.0]) == 2.0
    assert middle([]) is None
    assert quantile([1.0], 0.99) == 1.0
    assert quantile([float(each) for each in range(100)], 0.99) == 99.0
