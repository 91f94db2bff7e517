"""A hook of MkDocs: the command reference from the click tree, so that it cannot disagree with `--help`, with the call
in Python behind each command; and links to what stays in the repository.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping

import click

from pearl_qdrant.cli import cli
from pearl_qdrant.cli.setting import SetOption

MARK = "<!-- commands -->"
"""Where the reference goes in a page."""

CALLS = {
    "ingest --dry-run": "pearl_qdrant.scan_base",
    "link": "pearl_qdrant.EntityLinker.link_batch",
    "link --report": "pearl_qdrant.report.write_report",
    "annotate": "pearl_qdrant.EntityLinker.annotate",
    "learn": "pearl_qdrant.EntityLinker.learn",
    "learn --list": "pearl_qdrant.linking.learned.learned_batches",
    "learn --undo": "pearl_qdrant.EntityLinker.undo_learned",
    "calibrate": "pearl_qdrant.linking.calibration.calibrate_collection",
    "collections list": "pearl_qdrant.store.summarize_collections",
    "collections show": "pearl_qdrant.store.describe_collection",
    "collections delete": "pearl_qdrant.store.delete_collection",
    "collections finalize": "pearl_qdrant.store.finalize_collection",
    "collections verify": "pearl_qdrant.store.verify_collection",
    "collections push": "pearl_qdrant.transfer.push_collection",
    "collections pull": "pearl_qdrant.transfer.pull_collection",
    "collections prune": "pearl_qdrant.transfer.prune_collection",
    "reencode": "pearl_qdrant.transfer.reencode_collection",
    "reencode --rollback": "pearl_qdrant.transfer.rollback_collection",
    "entities show": "pearl_qdrant.EntityLinker.entity",
    "entities add": "pearl_qdrant.EntityLinker.add",
    "entities delete": "pearl_qdrant.EntityLinker.delete",
    "resolve": "pearl_qdrant.resolution.resolve",
    "resolve --undo": "pearl_qdrant.resolution.Resolution.undo",
    "crosswalk": "pearl_qdrant.crosswalk.crosswalk",
    "evaluate": "pearl_qdrant.evaluate_model",
    "evaluate --task help": "pearl_qdrant.list_tasks",
    "train corpus": "pearl_qdrant.make_corpus",
    "train ngrams": "pearl_qdrant.find_ngrams",
    "train paraphrase": "pearl_qdrant.paraphrase_corpus",
    "train synonyms": "pearl_qdrant.find_synonyms",
    "train negatives": "pearl_qdrant.mine_negatives",
    "train love": "pearl_qdrant.pretrain_character_encoder",
    "train fit": "pearl_qdrant.fit_model",
    "train ulr": "pearl_qdrant.train_ulr",
    "train head": "pearl_qdrant.train_head",
    "train average": "pearl_qdrant.average_checkpoint",
    "train export": "pearl_qdrant.export_checkpoint",
    "train judge": "pearl_qdrant.train_judge",
    "train refresh": "pearl_qdrant.refresh_model",
    "models list": "pearl_qdrant.encoder.list_models",
    "models show": "pearl_qdrant.encoder.loading.describe_model",
    "models export": "pearl_qdrant.rebuild_for_torch",
    "mcp": "pearl_qdrant.integrations.mcp.serve",
    "serve": "pearl_qdrant.service.serve",
    "demo": "ingest.load_base.load_sample",
    "doctor": "pearl_qdrant.doctor.run_checks",
}
"""Commands, some with the option that chooses another call, and the calls behind them."""


def on_page_markdown(markdown: str, config: Mapping[str, str], **_: object) -> str:
    """Called by MkDocs with the text of each page; replaces the mark, and addresses of the log."""
    log = f"{config['repo_url'].rstrip('/')}/blob/main/docs/experiments/"
    markdown = re.sub(r"\]\((?:\.\./)*experiments/", f"]({log}", markdown)
    if MARK not in markdown:
        return markdown
    return markdown.replace(MARK, "\n".join(describe(cli, click.Context(cli, info_name="pearl-qdrant"))))


def describe(command: click.Command, context: click.Context) -> Iterator[str]:
    """Markdown of a command and of the commands in it."""
    path = context.command_path
    depth = len(path.split())
    if depth > 1:
        yield f"{'#' * depth} {path} {{ #{'-'.join(path.split()[1:])} }}\n"
    yield from describe_help(command)
    yield f"```text\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```\n"
    yield from describe_options(command, context)
    yield from describe_calls(" ".join(path.split()[1:]))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from describe(inner, click.Context(inner, info_name=name, parent=context))


def describe_help(command: click.Command) -> Iterator[str]:
    """The help text; paragraphs that click must not wrap are examples."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        is_example = paragraph.startswith("\b")
        yield f"```text\n{paragraph[1:].strip()}\n```\n" if is_example else f"{paragraph}\n"


def describe_options(command: click.Command, context: click.Context) -> Iterator[str]:
    """A table of the options, with values, defaults and variables as `--help` shows them."""
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    for title, pairs in (("option", filter(None, records)), ("setting", settings_of(command))):
        rows = [f"| <code>{cell(name)}</code> | {cell(meaning)} |" for name, meaning in pairs]
        if rows:
            yield "\n".join([f"| {title} | meaning |", "|---|---|", *rows, ""])


def settings_of(command: click.Command) -> Iterator[tuple[str, str]]:
    """The names that `--set` takes, with what each means."""
    for one in command.params:
        if isinstance(one, SetOption):
            yield from one.explained(command).items()


def describe_calls(command: str) -> Iterator[str]:
    """What a program calls in place of the command, and of the command with an option."""
    for named, call in CALLS.items():
        name, dashes, option = named.partition(" --")
        if name == command:
            yield f"In Python{' for `--' + option + '`' if dashes else ''}: `{call}`.\n"


def cell(text: str) -> str:
    """Text that may stand in a cell of a table: without the marks of tables, links and tags."""
    escaped = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return escaped.replace("|", "&#124;").replace("[", "&#91;")
