"""Jobs inside one scope of each kind, for tests that apply to all three."""

from __future__ import annotations

import pytest

from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import CRAWL, SCOPES

each_scope = pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.kind.value)


async def crawl(bench: Bench, *names: str, **options: object) -> None:
    """Jobs of CRAWL in MAIL of ACME, unless the options say otherwise."""
    await bench.put(*names, group=CRAWL, **options)
