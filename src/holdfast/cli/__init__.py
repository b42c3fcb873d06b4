"""The command line: thin skins over `operate`, one file per command. `run` is the entry."""

from __future__ import annotations

from holdfast.cli.main import run

__all__ = ["run"]
