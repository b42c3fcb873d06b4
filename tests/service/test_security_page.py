"""The matrix of docs/security.md, tried against the service: each token, each act, on whom.

The page is read, and every cell is found out by doing it. An act has one probe for each way in; all
of them must come to the same.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.service.probes import ACTS
from tests.service.probing import BESIDE, MINE, THEIRS, TOKENS, Probe, place

import holdfast.core.bounds
from holdfast.core.scope import ScopeSettings
from holdfast.service.rights import Caller, Right
from holdfast.service.routes import ROUTES
from holdfast.service.settings import Limits

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


async def found_out(caller: Caller | None, probe: Probe) -> str:
    """On whom the act was done: nobody, the token's queues, its tenant, every tenant."""
    reach = []
    for target in (MINE, BESIDE, THEIRS):
        async with place(caller) as at:
            reach.append(await probe(at, target))
    words = {
        (False, False, False): "no",
        (True, False, False): "queues",
        (True, True, False): "tenant",
        (True, True, True): "every",
    }
    return words[tuple(reach)]  # type: ignore[index]


# -- the page --------------------------------------------------------------------------------------


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, its head first."""
    text = PAGE.read_text("utf-8")
    under = re.split(rf"^## {re.escape(heading)}$", text, flags=re.M)[1]
    lines = re.search(r"(?:^\|.*\n)+", under, re.M)
    assert lines is not None, heading
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in lines[0].splitlines()]
    return [rows[0], *rows[2:]]


MATRIX = "What each token can do"


def test_the_matrix_has_every_act_and_every_token() -> None:
    """So that none is left out when it is added on one side."""
    head, *rows = table(MATRIX)

    assert head[1:] == list(TOKENS)
    assert [row[0] for row in rows] == list(ACTS)


@pytest.mark.parametrize("act", ACTS)
async def test_each_cell_of_the_matrix_is_what_the_service_does(act: str) -> None:
    """P7, P19: by every way in."""
    head, *rows = table(MATRIX)
    [row] = [row for row in rows if row[0] == act]
    for token, said in zip(head[1:], row[1:], strict=True):
        found = {await found_out(TOKENS[token], probe) for probe in ACTS[act]}
        assert found == {said}, (act, token, found)


def test_every_right_stands_in_the_matrix() -> None:
    """A right that is added has a column."""
    head = " ".join(table(MATRIX)[0])

    for right in Right:
        assert f"`{right}`" in head
    assert {route.right for route in ROUTES} - {None} <= set(Right)


def test_the_limits_that_the_page_names_exist() -> None:
    """The resources that tenants share: names of `core/bounds.py`, the service or settings."""
    known = {
        *vars(holdfast.core.bounds),
        *Limits.__struct_fields__,
        *ScopeSettings.__struct_fields__,
    }
    _, *rows = table("Resources that tenants share")

    assert rows
    for row in rows:
        names = re.findall(r"`(\w+)`", row[1])
        assert names, row
        assert set(names) <= known, row
