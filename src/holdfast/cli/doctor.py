"""`holdfast doctor`: check a store for problems."""

from __future__ import annotations

import click

from holdfast import operate
from holdfast.cli.common import (
    DEFAULT_STORE,
    EXIT_ERROR,
    Settings,
    common_options,
    existing,
    json_option,
    load_app,
    work,
)
from holdfast.cli.show import clean, print_json
from holdfast.core.finding import Finding, Level

_SIGNS = {Level.OK: "✓ ok     ", Level.WARNING: "! warning", Level.BAD: "✗ bad    "}


@click.command("doctor")
@click.argument("url", required=False)
@json_option
@common_options
@click.pass_context
def command(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """Check a store for problems. URL is a short form of --store.

    The exit code is 1 if a finding is bad.
    """
    settings: Settings = ctx.obj
    named = url or settings.store
    if named is None and settings.app is not None:
        findings = work(operate.examine(load_app(settings.app).store))
    else:
        findings = work(operate.examine(existing(named or DEFAULT_STORE)))
    if as_json:
        print_json([_data(finding) for finding in findings])
    else:
        for finding in findings:
            sign = _SIGNS[finding.level]
            click.echo(f"{sign}  {finding.what}: {clean(finding.words)}")
    if any(finding.level is Level.BAD for finding in findings):
        ctx.exit(EXIT_ERROR)


def _data(finding: Finding) -> dict[str, str]:
    return {"level": finding.level.value, "what": finding.what, "words": finding.words}
