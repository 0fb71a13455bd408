"""`strandline diff`: what changed between two extracts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.inputs import names_of, open_sides, read_options, reading_options
from strandline.cli.output import (
    console,
    emit_json,
    output_options,
    pairs,
    running,
    say,
    takes_stdout,
    write_changes,
)

if TYPE_CHECKING:
    from strandline.differential import Differential

SAMPLE = 2000
"""Change rows from which examples are drawn."""


@click.command()
@click.argument("sides", nargs=-1, required=True, metavar="[OLD] NEW", type=click.Path())
@click.option(
    "-k", "--key", multiple=True, help="Key column; repeat, or separate by commas. Without: rows are counted."
)
@click.option(
    "--algorithm",
    type=click.Choice(["auto", "merge", "hash", "kb", "kbp", "window"]),
    default="auto",
    show_default=True,
    help="How to find changes; auto chooses by cost.",
)
@click.option("--columns", multiple=True, help="Compare only these columns.")
@click.option("--ignore", multiple=True, help="Leave these columns out.")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="A column of the old side by its new name.")
@click.option(
    "--compare",
    multiple=True,
    metavar="COLUMN=RULE",
    help="E.g. price=abs:0.01, string=trim, *=empty; for keys id=trim.",
)
@click.option("--where", help="Compare only rows that meet this SQL condition.")
@click.option(
    "--duplicates",
    type=click.Choice(["error", "count", "pair"]),
    default="error",
    show_default=True,
    help="Several rows of one key: refuse them, compare them as a multiset, or pair them by likeness.",
)
@click.option("--carry", is_flag=True, help="Take the values of added columns along; OLD's rows count as null there.")
@click.option("--any-case", is_flag=True, help="Column names that differ in case alone are the same; NEW's count.")
@click.option("--strict-schema", is_flag=True, help="A differing column or type is an error.")
@click.option("--state", type=click.Path(), help="Signatures kept here stand for OLD, and are replaced at the end.")
@click.option("--save-state", type=click.Path(), help="Keep signatures of NEW here for the next run.")
@click.option("--bits", type=int, help="Bits of a signature, 32 to 128.  [default: 64]")
@click.option("--miss-probability", type=float, help="Choose the bits for this probability of a missed update.")
@click.option("--column-signatures", is_flag=True, help="Sign each column, so that later runs know which changed.")
@click.option("--verify", is_flag=False, flag_value="", metavar="[OLD]", help="Re-check exactly what signatures found.")
@click.option("--memory", metavar="SIZE", help="Memory to use, e.g. 4GB; at least 64MB.")
@click.option("--aging", metavar="SIZE", help="Window: size of an aging buffer.  [default: 64MB]")
@click.option("--block", metavar="SIZE", help="Window: size of an input block.  [default: 16KB]")
@click.option("--slices", type=int, help="Window: parallel slices.")
@click.option(
    "--raw", is_flag=True, help="Window: its own messages as JSON lines, useless pairs included; nothing is written."
)
@click.option("--keep-sorted", type=click.Path(), help="Merge: keep NEW in key order in this folder.")
@click.option(
    "--fail-over",
    metavar="SHARE",
    help="Stop with an error if more of the old rows changed than this share: 30% or 0.3.",
)
@click.option("--input-format", "format_", help="What both sides are, if name and content don't tell: csv, parquet, …")
@click.option("--old-format", metavar="FORMAT", help="What OLD is, if NEW is something else.")
@click.option("--new-format", metavar="FORMAT", help="What NEW is, if OLD is something else.")
@click.option("--old-query", metavar="SQL", help="What to read of the database that OLD names, instead of a table.")
@click.option("--new-query", metavar="SQL", help="What to read of the database that NEW names, instead of a table.")
@click.option("--old-version", metavar="VERSION", help="The version of a Delta or Iceberg table: a number or a time.")
@click.option("--new-version", metavar="VERSION", help="The same of NEW; one table is both sides if it is given alone.")
@reading_options
@output_options
@click.option("--explain", is_flag=True, help="Show what each algorithm would cost and why one was taken.")
@running
def diff(sides: tuple[str, ...], as_json: bool, runner: str, **given: Any) -> int:
    """What changed between two extracts of a table.

    OLD and NEW are files, folders or globs (Parquet, CSV, JSON lines, Arrow, BOOK.xlsx#SHEET), Delta or Iceberg
    tables, STORE#NAME, a table or what-if of a store (STORE#NAME@STATE: at a state), or tables of databases:
    postgresql://…#table, sqlite:///file#table, duckdb:///file#table, adbc:driver:…#table for any installed driver of
    ADBC, whose primary key is the key unless another is given. OLD may be a folder of saved signatures. One side may
    be - for standard input, and each may be a pipe, as a shell's <(…) is.
    Exits with 0 if they are the same, 1 if not, 2 on trouble.

    \b
    Examples:
      strandline diff monday.parquet tuesday.parquet --key id
      strandline diff tuesday.parquet --key id --state orders.state
      strandline diff a.csv b.csv -k shop,id --compare price=abs:0.01 --html report.html
      strandline diff a.csv b.csv -k id --format jsonl | jq ._change
      strandline diff shop#staff shop#cut --key name
      strandline diff postgresql://me@host/shop#orders orders.parquet --key id
      strandline diff sqlite:///shop.db duckdb:///shop.duckdb#big --old-query "select * from t where n > 5" -k id
      strandline diff orders.delta --key id --old-version 3 --new-version 2030-01-31T12:00
      zcat monday.csv.gz | strandline diff - tuesday.csv --key id
    """
    from strandline.differential import find_changes
    from strandline.report import facts_of, summary_words

    old, new = _old_and_new(sides, given["state"], versions=bool(given["old_version"] or given["new_version"]))
    piped = takes_stdout(given, as_json=as_json, inputs=(old, new))
    options = _options(given)
    key = names_of(given["key"])
    if given["key"] and not key:
        raise click.UsageError("--key names no column. Leave it out to compare rows without a key.")
    if given["raw"]:
        _check_raw(given, runner)
    with ExitStack() as stack:
        older, newer = open_sides((old, new), stack)
        if given["raw"]:
            return _raw(older, newer, key, options, as_json=as_json)
        changes = find_changes(older, newer, key or None, runner=runner, **options)
    command = shlex.join(("strandline", *(click.get_current_context().find_root().obj or ())))
    facts = facts_of(changes.run, changes.header.counts, command)
    write_changes(changes, given, facts, renames=dict(changes.run.renames))
    changes.keep_state()
    if piped:
        say(summary_words(changes.header, facts, renames=dict(changes.run.renames)))
    elif as_json:
        _print_json(changes, facts, explain=given["explain"])
    else:
        _print_words(changes, facts, given["limit"], explain=given["explain"])
    header = changes.header
    return 1 if header.counts.rows or header.added or header.removed or header.retyped else 0


def _old_and_new(sides: Sequence[str], state: str | None, *, versions: bool) -> tuple[str | None, str]:
    if len(sides) == 2:
        return sides[0], sides[1]
    if len(sides) == 1 and versions:
        return sides[0], sides[0]
    if len(sides) == 1 and state is not None:
        return None, sides[0]
    raise click.UsageError(
        "Give two sides, OLD and NEW, or one side and --state. For example:\n"
        "  strandline diff monday.parquet tuesday.parquet --key id"
    )


def _options(given: dict[str, Any]) -> dict[str, Any]:
    read = read_options(given)
    names = (
        "algorithm where duplicates strict_schema any_case carry state save_state bits miss_probability "
        "column_signatures memory slices keep_sorted fail_over old_query new_query old_version new_version"
    )
    options = {name: given[name] for name in names.split()}
    options |= {name: given[name] for name in ("aging", "block") if given[name] is not None}
    options |= {
        "columns": names_of(given["columns"]) if given["columns"] else None,
        "ignore": names_of(given["ignore"]),
        "rename": pairs(given["rename"], "--rename"),
        "compare": pairs(given["compare"], "--compare"),
        "verify": given["verify"] or given["verify"] is not None,
        "old_format": given["old_format"] or given["format_"],
        "new_format": given["new_format"] or given["format_"],
        "read_old": read,
        "read_new": read,
    }
    return options


_WITH_RAW = {
    *("sides", "key", "algorithm", "columns", "ignore", "rename", "compare", "where", "duplicates", "any_case"),
    *("strict_schema", "aging", "block", "raw", "format_", "old_format", "new_format", "old_query", "new_query"),
    *("old_version", "new_version", "types", "union_by_name", "no_header", "delimiter", "encoding", "nulls"),
    *("runner", "quiet", "verbose", "as_json"),
}
"""The options that mean something for the window's messages, which are neither net nor written as a change set."""


def _check_raw(given: Mapping[str, Any], runner: str) -> None:
    """Refuses by name what has no meaning for the window's own messages."""
    context = click.get_current_context()
    unused = [
        option.opts[-1]
        for option in context.command.params
        if option.name not in _WITH_RAW
        and context.get_parameter_source(str(option.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    unused += ["--algorithm"] if given["algorithm"] not in ("auto", "window") else []
    unused += ["--duplicates"] if given["duplicates"] != "error" else []
    unused += ["--runner"] if runner == "spark" else []
    if unused:
        raise click.UsageError(
            f"--raw prints the window's own messages, read in one pass in this process: {', '.join(unused)} can't be "
            "had with it. Leave --raw out for changes that are net."
        )


def _raw(old: Any, new: Any, key: Sequence[str], options: dict[str, Any], *, as_json: bool) -> int:
    from strandline.differential import window_raw
    from strandline.report import json_lines

    run = window_raw(old, new, key, **{**options, "algorithm": "window"})
    lines = json_lines(dict(zip(run.rows.column_names, run.rows.columns, strict=True)))
    report, header = run.report, run.header
    if as_json:
        emit_json({"messages": list(map(json.loads, lines)), "distance": report.distance, **vars(report)})
    else:
        for line in lines:
            click.echo(line)
        say(
            f"{report.messages:,} messages; {report.evicted_old + report.evicted_new:,} rows outgrew the aging buffers."
        )
    drift = {"added": header.added, "removed": header.removed, "retyped": header.retyped}
    for word, names in drift.items():
        if names:
            say(f"Columns {word}: {', '.join(names)}.")
    return 1 if report.messages or any(drift.values()) else 0


def _print_json(changes: Differential, facts: Any, *, explain: bool) -> None:
    from strandline.report import summary_json

    record = summary_json(changes.header, facts, renames=dict(changes.run.renames))
    if explain:
        record["estimates"] = [vars(estimate) for estimate in changes.run.estimates]
    emit_json(record)


def _print_words(changes: Differential, facts: Any, limit: int, *, explain: bool) -> None:
    from strandline.changes import ChangeSet
    from strandline.report import pick_examples, summary_view

    shown = []
    if limit:
        rows = _sample(changes)
        shown = pick_examples(ChangeSet(changes.header, rows), limit)
    console().print(summary_view(changes.header, facts, examples=shown, renames=dict(changes.run.renames)))
    if explain:
        console().print("\n" + changes.explain(), markup=False)


def _sample(changes: Differential) -> Any:
    """Rows of every kind from which to show examples, without reading a large set whole."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from strandline.changes import CHANGE, COUNTED
    from strandline.values import no_rows

    if changes.form == COUNTED:
        return next(changes.tables(), no_rows(changes.header.rows_schema)).slice(0, SAMPLE)
    tables = []
    for table in changes.tables():
        for kind in ("delete", "update", "insert"):
            tables.append(table.filter(pc.equal(table.column(CHANGE), kind)).slice(0, SAMPLE))
        if sum(len(each) for each in tables) > SAMPLE:
            break
    return pa.concat_tables(tables) if tables else no_rows(changes.header.rows_schema)
