"""Who does it, and why? The options of commands that change something, as one `By`."""

from __future__ import annotations

import functools
import getpass
from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.job import By

F = TypeVar("F", bound=Callable[..., Any])


def signed(function: F) -> Callable[..., Any]:
    """Adds `--author` and `--why`; the command gets them as `by`."""

    @functools.wraps(function)
    def wrapped(*args: Any, author: str | None, why: str, **given: Any) -> Any:
        return function(*args, by=By(author or user(), why).checked(), **given)

    author = click.option("--author", help="Who says so; the user of this shell without it.")
    why = click.option("--why", default="", metavar="TEXT", help="Kept in the event.")
    signed: Callable[..., Any] = author(why(wrapped))
    return signed


def user() -> str:
    """The name of who is at this shell."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("this shell has no user name: say --author") from None
