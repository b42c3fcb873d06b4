"""One word, one meaning: the words of ARCHITECTURE.md against the names in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "holdfast"
PAGE = ROOT / "ARCHITECTURE.md"

OTHER_FIELDS = {
    "service/auth/claims.py": "the claims of a JSON Web Token",
    "testing/faults.py": "fault injection",
}
"""Modules whose name is a retired word, because another field uses it: the path and the use."""


@cache
def section(title: str) -> str:
    """The text under a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE.read_text(), re.M | re.S)
    assert found is not None, f"ARCHITECTURE.md has no section {title!r}"
    return found[1]


def table_words() -> list[str]:
    rows = re.findall(r"^\| ([a-z ]+) \|", section("Words"), re.M)
    return [word for word in rows if word != "word"]


def retired() -> set[str]:
    return set(re.findall(r"`([a-z]+)`", section("Retired words")))


def words_of(name: str) -> set[str]:
    """`claim_select` and `ClaimSelect` are both claim, select."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+", name)
    return {part.lower() for part in parts}


def modules(*, stores: bool) -> Iterator[Path]:
    """Those of the stores, or all others."""
    for path in sorted(SRC.rglob("*.py")):
        if (path.relative_to(SRC).parts[0] == "stores") is stores:
            yield path


def public_classes(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def names_with_retired_words(*, stores: bool) -> list[str]:
    found = []
    for path in modules(stores=stores):
        place = path.relative_to(SRC).as_posix()
        if place not in OTHER_FIELDS:
            found += [
                f"{place}: {name} has the retired word {word!r}"
                for name in (path.stem, *public_classes(path))
                for word in words_of(name) & retired()
            ]
    return found


def test_every_word_of_the_table_is_used_in_the_code() -> None:
    """A word that the code has lost would send a reader looking for nothing."""
    used: set[str] = set()
    for path in SRC.rglob("*.py"):
        used |= words_of(path.stem)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                used |= words_of(node.name)

    unused = [word for word in table_words() if not used & {word, f"{word}s", f"{word}ed"}]
    assert unused == []


def test_a_word_is_in_the_table_once_and_is_not_retired() -> None:
    """One word has one meaning."""
    words = table_words()

    assert len(words) == len(set(words))
    assert set(words) & retired() == set()


def test_no_retired_word_names_a_module_or_a_public_class() -> None:
    """A reader who knows the table can guess what a file is about."""
    assert names_with_retired_words(stores=False) == []


# -- stores ----------------------------------------------------------------------------------------


def common_files() -> set[str]:
    """The names that every store uses."""
    text, _, _ = section("Files of a store").partition("|")
    return set(re.findall(r"`([a-z]+)`", text))


def own_files(store: str) -> set[str]:
    found = re.search(rf"^\| {store} \| (.*) \|$", section("Files of a store"), re.M)
    assert found is not None, f"ARCHITECTURE.md lists no files of the store {store}"
    return set(re.findall(r"`([a-z]+)`", found[1]))


def stores() -> list[Path]:
    return sorted(path.parent for path in (SRC / "stores").glob("*/store.py"))


def test_the_files_of_a_store_are_named_by_the_contract_or_listed() -> None:
    """Whoever knows one store finds a verb in every other."""
    strange = [
        path.relative_to(SRC).as_posix()
        for store in stores()
        for path in sorted(store.glob("*.py"))
        if path.stem.partition("_")[0] not in {"", *common_files(), *own_files(store.name)}
    ]

    assert strange == []


def test_the_own_files_that_are_listed_exist() -> None:
    """A list of what is gone would mislead."""
    gone = [
        f"{store.name}: {name}"
        for store in stores()
        for name in sorted(own_files(store.name))
        if name not in {path.stem.partition("_")[0] for path in store.glob("*.py")}
    ]

    assert gone == []


def test_no_retired_word_names_a_module_or_a_public_class_of_a_store() -> None:
    """The same words inside the stores as outside."""
    assert names_with_retired_words(stores=True) == []
