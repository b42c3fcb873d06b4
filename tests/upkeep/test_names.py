"""Who takes part in the election is told apart by name."""

from __future__ import annotations

import os
import socket

import pytest

from holdfast.config import Config
from holdfast.core.bounds import WORKER_MAX
from holdfast.stores import open_store
from holdfast.upkeep.leader import Upkeep
from holdfast.worker_registry import fresh_name


async def test_one_process_leads_also_where_each_has_the_same_host_name_and_pid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In containers the service is always process 1; two that are called alike would both lead."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(socket, "gethostname", lambda: "app")
    store = open_store("memory://")
    await store.open()
    both = [Upkeep(store, Config(), fresh_name("service-")) for _ in range(2)]

    for upkeep in both:
        await upkeep.turn()

    assert [upkeep.leading for upkeep in both] == [True, False]
    await store.close()


def test_a_name_fits_however_long_the_host_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's name is bounded."""
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 250)

    assert len(fresh_name("service-")) <= WORKER_MAX
