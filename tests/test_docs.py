"""The documentation is true: its programs run, its links lead somewhere, its tables are whole."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.config import Config
from holdfast.core import bounds, edge_bounds, errors
from holdfast.core.capabilities import Capabilities
from holdfast.core.errors import HoldfastError
from holdfast.core.job import EventKind, Reason, State
from holdfast.many import CHUNK_MAX
from holdfast.store import Store
from holdfast.stores import STORES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted(DOCS.rglob("*.md"))
"""The pages that users read."""
LINKED = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *PAGES,
]
"""Where links are followed. ARCHITECTURE.md and the like need no programs that run."""

FENCE = re.compile(r"^```(.*)$")
LINK = re.compile(r"(?<!!)\[[^\]\[]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*$")
WALK = "docs/service/README.md"
"""Its blocks of shell are run by tests/service/test_walk.py."""
PROGRAM_S_MAX = 30


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(page: Path) -> Iterator[tuple[str, str]]:
    """(info, text) of each fenced block, in order. A block marked `fragment` is no program."""
    info: str | None = None
    lines: list[str] = []
    for line in page.read_text("utf-8").splitlines():
        fence = FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif info is None:
            info, lines = fence[1].strip(), []
        else:
            yield info, "\n".join(lines)
            info, lines = None, []
    assert info is None, f"{_named(page)}: a fence is not closed"


def _program(page: Path) -> str:
    """The page's Python blocks, read in order, as one program."""
    return "\n\n\n".join(text for info, text in _blocks(page) if info == "python") + "\n"


def _prose(page: Path) -> list[str]:
    """The lines outside fenced blocks."""
    fenced = False
    prose = []
    for line in page.read_text("utf-8").splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            prose.append(line)
    return prose


def _anchor(heading: str) -> str:
    """The fragment that GitHub gives a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return words.replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    return {_anchor(found[1]) for line in _prose(page) if (found := HEADING.match(line))}


def _words(page: Path) -> set[str]:
    """What the page sets in code, word by word."""
    return {
        word
        for span in re.findall(r"`([^`\n]+)`", page.read_text("utf-8"))
        for word in re.findall(r"\w+", span)
    }


# -- programs --------------------------------------------------------------------------------------

PROGRAMS = [page for page in (ROOT / "README.md", *PAGES) if _program(page).strip()]


@pytest.mark.parametrize("page", PROGRAMS, ids=_named)
def test_the_programs_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """A newcomer copies them: in an empty directory they must work as they stand."""
    script = tmp_path / "page.py"
    script.write_text(_program(page), "utf-8")

    ran = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_a_block_of_python_is_a_program_or_says_that_it_is_a_fragment(page: Path) -> None:
    """A misspelt mark would take a program out of the tests in silence."""
    infos = {info for info, _ in _blocks(page)}
    shell = {"sh"} if _named(page) == WALK else set()

    assert infos <= {"python", "python fragment"} | shell


def test_the_guides_have_programs() -> None:
    """The search for programs finds them: an empty list would prove nothing."""
    with_programs = {_named(page) for page in PROGRAMS}

    assert {"README.md", "docs/start.md"} <= with_programs
    assert {_named(page) for page in (DOCS / "guides").glob("*.md")} <= with_programs


# -- links -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in LINKED if page.exists()], ids=_named)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """Relative links name a file that is there, and their anchors a heading of it."""
    assert [link for link in _links(page) if _broken(page, link)] == []


def _links(page: Path) -> list[str]:
    return LINK.findall("\n".join(_prose(page)))


def _broken(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and anchor not in _anchors(target)


def test_every_page_can_be_reached_from_the_readme() -> None:
    """A page that nothing links to is not read."""
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for link in _links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.is_file():
                waiting.append(target)

    assert set(PAGES) <= reached


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_a_page_has_one_title_and_a_sentence_of_purpose(page: Path) -> None:
    """A reader knows after two lines whether this is the right page."""
    lines = [line for line in _prose(page) if line.strip()]
    titles = [line for line in lines if line.startswith("# ")]

    assert lines[:1] == titles
    assert re.fullmatch(r"[A-Z].*[.]", lines[1])


# -- completeness ----------------------------------------------------------------------------------


def test_the_settings_page_names_every_setting_with_its_default() -> None:
    """A setting that is not described does not exist for its users; one that is gone misleads."""
    text = (REFERENCE / "settings.md").read_text("utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| `?([^ |`]+)", text, re.M))

    assert {name: ast.literal_eval(value) for name, value in told.items()} == _defaults()


def _defaults() -> dict[str, object]:
    return msgspec.structs.asdict(Config())


def _limits() -> dict[str, float]:
    return {
        name: value
        for name, value in (vars(bounds) | vars(edge_bounds)).items()
        if name.isupper() and isinstance(value, int | float)
    }


def test_the_limits_page_names_every_limit_with_its_value() -> None:
    """The numbers of the page are those of the code."""
    text = (REFERENCE / "limits.md").read_text("utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| (-?[\d,.]+)", text, re.M))

    assert {name: float(value.replace(",", "")) for name, value in told.items()} == _limits()


def _codes(kind: type[HoldfastError] = HoldfastError) -> dict[str, str]:
    """The name of each error with its code."""
    found = {kind.__name__: kind.code}
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            found |= _codes(child)
    return found


def test_the_errors_page_draws_the_whole_tree() -> None:
    """Every error stands beside its code, and no other does."""
    text = (REFERENCE / "errors.md").read_text("utf-8")
    drawn = dict(re.findall(r"^    [│├└─ ]*([A-Z]\w+) +([A-Z_]+)$", text, re.M))

    assert drawn == _codes()


def test_the_errors_page_says_what_to_do_about_every_code() -> None:
    """A code that is only drawn helps nobody."""
    assert set(_codes().values()) <= _words(REFERENCE / "errors.md")


def test_the_concepts_name_every_state_reason_and_kind_of_event() -> None:
    """What a user can meet in a record or in the log is explained."""
    met = {member.value for kind in (State, Reason, EventKind) for member in kind}

    assert met <= _words(DOCS / "concepts.md")


def test_the_stores_page_names_every_verb_and_capability() -> None:
    """Who writes a store reads the contract there."""
    verbs = {name for name in vars(Store) if not name.startswith("_") and name != "capabilities"}

    assert verbs | set(Capabilities.__struct_fields__) <= _words(REFERENCE / "stores.md")


def test_the_library_page_names_every_public_name() -> None:
    """What `holdfast` exports is described."""
    import holdfast

    text = (REFERENCE / "library.md").read_text("utf-8")

    assert {name for name in holdfast.__all__ if not re.search(rf"\b{name}\b", text)} == set()


def test_the_command_page_names_every_command_and_option() -> None:
    """A command, or an option of one, that is not on the page is found by nobody."""
    click = pytest.importorskip("click")
    from holdfast.cli.main import cli

    text = (REFERENCE / "cli.md").read_text("utf-8")
    commands, options = set(), set()
    waiting = [("", cli)]
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += [(f"{name} {one}".strip(), each) for one, each in command.commands.items()]
        commands |= {name} - {""}
        for parameter in command.params:
            options |= {option for option in parameter.opts if option.startswith("--")}

    assert {name for name in commands if f"holdfast {name}" not in text} == set()
    assert {option for option in options if not re.search(rf"{option}\b", text)} == set()


@pytest.mark.parametrize("page", [DOCS / "guides/jobs.md", REFERENCE / "limits.md"], ids=_named)
def test_the_batches_of_enqueue_many_are_as_large_as_it_is_said(page: Path) -> None:
    """By the number that the code has."""
    [said] = re.findall(r"batches of up to (\d+) jobs", page.read_text("utf-8"))

    assert int(said) == CHUNK_MAX


def test_every_scheme_of_a_store_is_named() -> None:
    """On the page of stores, to which the error for a wrong one leads."""
    page = (REFERENCE / "stores.md").read_text("utf-8")
    [row] = [line for line in _prose(REFERENCE / "errors.md") if "`UNKNOWN_STORE`" in line]

    assert {scheme for scheme in STORES if f"`{scheme}://" not in page} == set()
    assert "(stores.md#urls)" in row


def test_nobody_is_told_that_the_short_run_is_every_test() -> None:
    """Slow tests need --all."""
    lines = [line for page in LINKED for line in page.read_text("utf-8").splitlines()]
    said = [line for line in lines if "every check and test" in line]

    assert said
    assert all("./scripts/test --all" in line for line in said)


def test_a_ratio_of_http_that_misses_its_target_is_said_to() -> None:
    """The words beside the figures are the figures' own."""
    rows = [line.strip("| ").split(" | ") for line in _prose(DOCS / "performance.md")]
    http = [row for row in rows if row[-1] in ("met", "missed") and "/s" in row[1]]

    assert len(http) == 5
    for *_, ratio, target, verdict in http:
        assert verdict == ("met" if float(ratio) >= float(target) else "missed")
