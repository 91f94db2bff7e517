"""`pearl-qdrant doctor`: check the installation."""

from __future__ import annotations

import click

from pearl_qdrant.cli.common.options import json_option, store_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.settings import DEFAULT_MODEL


@click.command()
@store_option
@click.option(
    "--model",
    envvar="PEARL_QDRANT_MODEL",
    show_envvar=True,
    default=DEFAULT_MODEL,
    show_default=True,
    help="The model to check.",
)
@json_option
@click.pass_context
def doctor(context: click.Context, store: str, model: str, as_json: bool) -> None:
    """Check versions, devices, the store and the model. The exit status is 1 if something needs a fix."""
    from pearl_qdrant.doctor import run_checks

    has_failed = False
    for check in run_checks(store, model):
        has_failed |= check.state == "fail"
        if as_json:
            echo_json({"check": check.subject, "state": check.state, "found": check.finding})
        else:
            echo(f"{check.state:>5}  {check.subject:<10}  {check.finding}")
    if has_failed:
        context.exit(1)
