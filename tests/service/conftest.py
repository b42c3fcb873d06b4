"""A service over a memory store, called without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.service.asgi import Client
from tests.service.firecrawl import KINDS
from tests.service.minted import serving, tokens

from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.service import Service
from holdfast.stores import open_store

ACME = "acme"


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """On a memory store, without authentication."""
    found = Service(open_store("memory://"), NoAuth())
    await found.store.open()
    yield found
    found.close()
    await found.store.close()


@pytest.fixture
def client(service: Service) -> Client:
    """Acts for the tenant `acme`."""
    return Client(application(service, owns_store=False), {"holdfast-tenant": ACME})


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A store that the Firecrawl wire is tried over."""
    return str(request.param)


@pytest.fixture
async def bare() -> AsyncIterator[Client]:
    """A service that asks for tokens."""
    async with serving(tokens()) as found:
        yield found
