"""What all tests share: the same examples on every machine, so that a failure can be had again."""

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from tests.plan import is_slow, kind_of, place_of

if TYPE_CHECKING:
    from tests.servers.kinds import Servers

pytest.register_assert_rewrite("holdfast.testing.contract")

settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
SEED = "--hypothesis-seed"
PROFILE = os.environ.get("HOLDFAST_HYPOTHESIS", "fixed")
settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A seed that can be told, and under xdist: how tests are given to the workers."""
    if PROFILE == "explore" and config.getoption(SEED) is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32))
    if config.pluginmanager.hasplugin("dsession"):
        from tests.units import Units

        config.pluginmanager.register(Units())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what only --all runs, before anything is chosen by marks."""
    for item in items:
        if is_slow(item):
            item.add_marker(pytest.mark.slow)
    items.sort(key=place_of)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure says how to repeat it, and what its server logged last."""
    report = yield
    if report.failed:
        store, seed = kind_of(item.nodeid) or "none", item.config.getoption(SEED)
        command = f".venv/bin/python -m pytest '{item.nodeid}'"
        if seed is not None:
            command = f"HOLDFAST_HYPOTHESIS={PROFILE} {command} {SEED}={seed}"
        report.sections.append(("repeat", f"store: {store}, seed: {seed or PROFILE}\n{command}"))
        server: Any = getattr(item, "funcargs", {}).get("server")
        if hasattr(server, "tail"):
            report.sections.append(("server log", server.tail()))
    return report


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The private servers of this process, started when asked for. Each worker has its own."""
    from tests.servers.kinds import Servers

    with Servers() as servers:
        yield servers
