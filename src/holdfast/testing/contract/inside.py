"""Jobs inside one scope of each kind, for tests that apply to all of them."""

from __future__ import annotations

import pytest

from holdfast.core.scope import Scope
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import CRAWL, PLATFORM_SCOPES, SCOPES


def _name(scope: Scope) -> str:
    return f"{scope.kind.value}-over-all" if scope.of_platform else scope.kind.value


each_scope = pytest.mark.parametrize("scope", [*SCOPES, *PLATFORM_SCOPES], ids=_name)
each_tenant_scope = pytest.mark.parametrize("scope", SCOPES, ids=_name)
each_platform_scope = pytest.mark.parametrize("scope", PLATFORM_SCOPES, ids=_name)


async def crawl(bench: Bench, *names: str, **options: object) -> None:
    """Jobs of CRAWL in MAIL of ACME, unless the options say otherwise."""
    await bench.put(*names, group=CRAWL, **options)
