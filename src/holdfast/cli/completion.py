"""`holdfast completion`: print a script for shell completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script for a shell.

    \b
    bash:  eval "$(holdfast completion bash)"
    zsh:   eval "$(holdfast completion zsh)"
    fish:  holdfast completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells of the choice above"
    root = ctx.find_root().command
    click.echo(kind(root, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
