"""The plan of the tests names only what exists, and leaves no store without its suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.plan import BY_KIND, FULL, LONG, OLDEST, TIMED, TOPICS, kind_of, unit_of
from tests.servers.binaries import WANTED_POSTGRES
from tests.stores.conftest import STORES

from holdfast.testing.contract import TOPICS as SUITE

ROOT = Path(__file__).parent.parent
WANTED = {"postgres15", "postgres18", "redis", "cluster"}


def test_every_kind_runs_the_suite_or_some_topics_of_it() -> None:
    """A kind that no list names would be left to --all without a word."""
    assert FULL.isdisjoint(TOPICS)
    assert WANTED <= FULL | TOPICS.keys() <= set(STORES)
    assert f"postgres{min(WANTED_POSTGRES)}" == OLDEST


@pytest.mark.parametrize("kind", sorted(TOPICS))
def test_the_topics_of_a_kind_are_topics_of_the_suite(kind: str) -> None:
    """A topic that was renamed must not fall out of the run."""
    assert TOPICS[kind] < set(SUITE)


def test_the_files_of_the_plan_exist() -> None:
    """Nor a file."""
    stores = {f"tests/stores/{name}" for name in BY_KIND}
    for path in (*TIMED, *LONG, *stores):
        assert list(ROOT.glob(f"{path}*")), path


def test_tests_of_one_store_are_one_unit() -> None:
    """So that its server is started by one worker."""
    first = unit_of("tests/stores/test_races.py::test_a[redis]")
    assert first == unit_of("tests/stores/test_races.py::test_b[few-redis-3]")
    assert first != unit_of("tests/stores/test_races.py::test_a[cluster]")


def test_many_seeds_are_several_units() -> None:
    """Else one worker would run them all."""
    units = {unit_of(f"tests/stores/foundationdb/test_a.py::test_b[{n}]") for n in range(10_000)}
    assert len(units) == 20


def test_tests_that_measure_time_are_one_unit() -> None:
    """Two of them side by side would disturb each other."""
    assert unit_of("tests/chaos/test_kill.py::test_a") == unit_of("tests/fuzz/test_fuzz.py::test_b")


@pytest.mark.parametrize(
    ("id", "kind"),
    [("[redis]", "redis"), ("[few-postgres15]", "postgres15"), ("[rediscover]", None), ("", None)],
)
def test_the_store_of_a_test_is_read_from_its_id(id: str, kind: str | None) -> None:
    """Also when other parameters stand before it."""
    assert kind_of(f"tests/test_a.py::test_b{id}") == kind
