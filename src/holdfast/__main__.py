"""`holdfast` and `python -m holdfast`: run the command line."""

from __future__ import annotations

import sys

from holdfast.core.errors import MissingExtra


def main() -> None:
    """Runs the command line. If the extra `cli` is missing, prints how to install it."""
    try:
        from holdfast.cli import run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        missing = MissingExtra(
            field="cli", what="the command line", package=error.name, extra="cli"
        )
        sys.exit(f"holdfast: {missing} [{missing.code}]")
    run()


if __name__ == "__main__":
    main()
