"""Stores for tests that kill processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers.kinds import Missing, install_of
from tests.servers.postgres import Postgres
from tests.servers.redis_node import RedisNode


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store that several processes can open."""
    kind = request.param
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    try:
        server: Any = (
            RedisNode(install_of("redis"))
            if kind == "redis"
            else Postgres(install_of("postgres15"))
        )
    except Missing as missing:
        missing.end_test()
    with server:
        yield server.lend("chaos")
