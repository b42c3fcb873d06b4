"""The options --author and --why of commands that change something, combined into one `By`."""

from __future__ import annotations

import functools
import getpass
from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.core.job import By

F = TypeVar("F", bound=Callable[..., Any])


def signed(function: F) -> Callable[..., Any]:
    """Adds `--author` and `--why`. The command receives them as one argument, `by`."""

    @functools.wraps(function)
    def wrapped(*args: Any, author: str | None, why: str, **given: Any) -> Any:
        return function(*args, by=By(author or user(), why).checked(), **given)

    author = click.option("--author", help="Author of the change. Default: the current user.")
    why = click.option("--why", default="", metavar="TEXT", help="Reason, stored in the event.")
    signed: Callable[..., Any] = author(why(wrapped))
    return signed


def user() -> str:
    """The name of the current user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("the current user has no name: give --author") from None
