"""The OpenAPI document is true: what is made of it is answered as it says, and never by a 5xx."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.service.live import serving

from holdfast.service.openapi import document
from holdfast.service.routes import ROUTES

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@pytest.mark.parametrize(
    "examples", [pytest.param(3, id="few"), pytest.param(100, id="many", marks=pytest.mark.slow)]
)
def test_every_operation_answers_as_the_document_says(examples: int, tmp_path: Path) -> None:
    """By coverage of each constraint and by random values; not the stream, which does not end."""
    with serving("memory://", "--limit=wait_s=0.05") as url:
        done = subprocess.run(
            [
                Path(sys.executable).parent / "schemathesis",
                "run",
                f"{url}/openapi.json",
                "--header=Holdfast-Tenant: fuzz",
                f"--max-examples={examples}",
                "--seed=7",
                "--request-timeout=35",
                "--exclude-operation-id=follow",
                f"--checks={','.join(CHECKS)}",
                "--warnings=off",
                "--phases=coverage,fuzzing",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def test_the_document_has_every_route_and_says_what_right_it_needs() -> None:
    """One line of the table, one operation."""
    paths = document(ROUTES)["paths"]

    operations = {(m.upper(), path) for path, of in paths.items() for m in of}
    assert operations == {(route.method, route.path) for route in ROUTES if not route.hidden}
    for route in ROUTES:
        if route.right is not None and not route.hidden:
            found = paths[route.path][route.method.lower()]
            assert route.right.value in found["description"]
