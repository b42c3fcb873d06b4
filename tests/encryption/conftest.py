"""A store with and without keys in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.encryption.vault import Vault

from holdfast.testing import ManualClock


@pytest.fixture
async def vault() -> AsyncIterator[Vault]:
    """On a clock that stands still."""
    vault = Vault(ManualClock())
    await vault.plain.open()
    yield vault
    await vault.close()
