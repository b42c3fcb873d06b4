"""The command line: one file per command, each a thin layer over `operate`. Entry point: `run`."""

from __future__ import annotations

from holdfast.cli.main import run

__all__ = ["run"]
