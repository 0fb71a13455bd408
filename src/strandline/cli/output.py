"""What commands print, and the options that several of them share: one JSON object on standard output, words and tables
for people, errors on standard error.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.engine import MASTER_VARIABLE, is_quiet, set_quiet

if TYPE_CHECKING:
    from rich.console import Console

    from strandline.changes import Changes
    from strandline.report import RunFacts


def emit_json(record: object) -> None:
    """One JSON object, readable by any parser: no NaN, no infinities, no bytes."""
    sys.stdout.write(json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """A value as JSON can hold it: what JSON lacks becomes text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)):
        return str(value)
    if isinstance(value, Iterable):
        return [plain(inner) for inner in value]
    return str(value)


def say(words: str) -> None:
    """Words for the person at the terminal, never mixed into what a program reads; none with `--quiet`."""
    if not is_quiet():
        complain(words)


def complain(words: str) -> None:
    """Words that nothing silences: what went wrong."""
    sys.stderr.write(words.rstrip() + "\n")


def console() -> Console:
    """Where tables are drawn: standard output, coloured only on a terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def draw_rows(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table of values; nulls are drawn as a dim dash so that they differ from empty text."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold")
    for name in names:
        table.add_column(Text(name))
    for row in rows:
        table.add_row(*(Text("–", style="dim") if value is None else Text(_cell(value)) for value in row))
    console().print(table)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    text = text.strip('"') if not isinstance(value, str) else text
    return text if len(text) <= 60 else text[:57] + "…"


F = TypeVar("F", bound=Callable[..., Any])


def running(function: F) -> F:
    """`--runner`, `--master`, `--quiet` and `--json`, for commands that work on rows."""

    @click.option(
        "--runner",
        type=click.Choice(["auto", "spark", "inline"]),
        default="auto",
        show_default=True,
        help="Where the work runs: on Spark, in this process, or whichever fits the size.",
    )
    @click.option("--master", metavar="URL", help="The Spark master: local[*], spark://host:port or sc://host:port.")
    @click.option("--quiet", is_flag=True, help="No progress and no words beside the result.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
    @functools.wraps(function)
    def wrapped(*args: Any, master: str | None, quiet: bool, **kwargs: Any) -> Any:
        if master:
            os.environ[MASTER_VARIABLE] = master
        set_quiet(quiet or kwargs["as_json"])
        return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]


_OUTPUT_OPTIONS = (
    click.option("--out", type=click.Path(), help="Write the changes: .parquet, .csv, .jsonl, .sql or .changes."),
    click.option(
        "--layout",
        type=click.Choice(["changes", "column_by_column", "side_by_side", "sparse", "left", "right"]),
        default="changes",
        show_default=True,
        help="How rows are laid out in --out.",
    ),
    click.option("--sql-table", default="", help="The table that a .sql script changes."),
    click.option("--dialect", default="standard", show_default=True, help="The dialect of a .sql script."),
    click.option("--html", "html_path", type=click.Path(), help="Write a report to open in a browser."),
    click.option(
        "--limit", type=click.IntRange(min=0), default=3, show_default=True, help="Examples of each kind to show."
    ),
)


def output_options(function: F) -> F:
    """The options of commands that find changes: where `write_changes` puts them, and how many examples are shown."""
    for option in reversed(_OUTPUT_OPTIONS):
        function = option(function)
    return function


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` texts as a mapping."""
    values = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE, not {text!r}")
        values[name.strip()] = value
    return values


def write_changes(
    changes: Changes, given: Mapping[str, Any], facts: RunFacts | None = None, renames: Mapping[str, str] | None = None
) -> None:
    """Writes the files that a command was asked for: `--out` in its layout, `--html`."""
    from strandline.changes import ChangeSet
    from strandline.report import Out, format_of, html_report, positions_by_key, write_out, write_text

    if given["out"]:
        if format_of(given["out"]) == "changes" and given["layout"] == "changes":
            changes.save(given["out"])
        else:
            out = Out(given["out"], layout=given["layout"], table=given["sql_table"], dialect=given["dialect"])
            write_out(changes.header, changes.tables(), out)
    if given["html_path"]:
        rows = changes.to_arrow()
        where = positions_by_key(ChangeSet(changes.header, rows))
        write_text([html_report(changes.header, rows, facts, where=where, renames=renames)], given["html_path"])
