"""`strandline apply`, `invert`, `compose` and `show` for saved change sets; `net` for logs of events; `changes` for a
table's changes from one state to another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.inputs import names_of
from strandline.cli.output import (
    answer,
    console,
    emit_json,
    leave_pandas_out,
    output_options,
    pairs,
    place,
    row_options,
    running,
    say,
    takes_stdout,
    target_of,
    telling,
    write_changes,
    writing_options,
)
from strandline.cli.store_access import (
    STATE,
    count_of,
    show_rows,
    show_table,
    store_argument,
    tables_of,
    version_option,
)

if TYPE_CHECKING:
    from strandline.changes import Changes, Header
    from strandline.store import StoreChanges


@click.command()
@click.argument("changes_path", metavar="CHANGES", type=click.Path())
@click.argument("relation", type=click.Path())
@row_options
@click.option("--lenient", is_flag=True, help="Let the last writer win where the changes don't fit.")
@click.option("--fill", multiple=True, metavar="COLUMN=VALUE", help="What a column holds that was added meanwhile.")
@running
def apply(
    changes_path: str, relation: str, lenient: bool, fill: tuple[str, ...], as_json: bool, runner: str, **given: Any
) -> int:
    """Applies a saved change set to a relation. The result is written; a name without a suffix is a folder of Parquet.

    Changes that don't fit (an insert of a present key, an update or delete of an absent one) are an error that shows
    the keys; nothing is written then.

    \b
    Examples:
      strandline apply tuesday.changes monday.parquet --out again.parquet
      strandline apply tuesday.changes monday.parquet --format csv > again.csv
    """
    import strandline as sl
    from strandline.report import format_of, write_rows

    takes_stdout(given, as_json=as_json)
    out, format_ = target_of(given)
    if not out:
        raise click.UsageError("say where the rows go: --out again.parquet, or --format csv")
    changes = sl.Changes.load(changes_path)
    applied = changes.apply(relation, lenient=lenient, fill=_filling(fill, [changes]), runner=runner)
    if (format_ or format_of(out, "parquet")) == "parquet" and out != "-":
        applied.save(out)
    else:
        write_rows(applied.tables(), out, format_)
    count, rows = changes.summary().changed, applied.rows
    words = f"{count_of(count, 'change')} applied to {relation}: {count_of(rows, 'row')} in {place(out)}."
    return answer({"out": out, "rows": rows, "applied": count}, words, as_json=as_json)


def _filling(given: Sequence[str], sets: Sequence[Changes]) -> dict[str, Any] | None:
    """What added columns hold, in their types: an empty text is null where the column is no text. None where something
    has to be said of one, and nothing is."""
    import pyarrow as pa

    from strandline.values import convert_text

    added = {
        name: each.header.new_schema.field(name).type
        for each in sets
        if each.header.partial
        for name in (*each.header.added, *each.header.retyped)
    }
    values = {
        name: convert_text(pa.array([text]), added.get(name, pa.string()), name)[0].as_py()
        for name, text in pairs(given, "--fill").items()
    }
    return values or (None if added else {})


@click.command()
@click.argument("changes_path", metavar="CHANGES", type=click.Path())
@output_options
@running
def invert(changes_path: str, as_json: bool, runner: str, **given: Any) -> int:
    """The change set that undoes a saved one. It needs before images.

    \b
    Examples:
      strandline invert tuesday.changes --out undo.changes
      strandline invert tuesday.changes --out undo.sql --sql-table shop.orders
    """
    import strandline as sl

    _check_asked(given, as_json=as_json)
    return _put(sl.Changes.load(changes_path).invert(runner=runner), given, as_json=as_json)


def _check_asked(given: dict[str, Any], *, as_json: bool) -> None:
    takes_stdout(given, as_json=as_json)
    if not any(given[name] for name in ("out", "out_format", "html_path", "append_path")):
        raise click.UsageError("say where the result goes: --out undo.changes, or --format csv")


def _put(result: Changes, given: dict[str, Any], *, as_json: bool) -> int:
    """Write a set made of saved ones where it was asked for: a name that names no format is a saved set's folder."""
    write_changes(result, given, otherwise="changes")
    out = target_of(given)[0] or given["html_path"] or given["append_path"]
    return answer({"out": out, **result.summary().to_json()}, f"{place(out)}: {result.summary()}.", as_json=as_json)


@click.command()
@click.argument("changes_paths", metavar="FIRST THEN…", nargs=-1, required=True, type=click.Path())
@output_options
@click.option("--fill", multiple=True, metavar="COLUMN=VALUE", help="What a column holds that was added meanwhile.")
@running
def compose(changes_paths: tuple[str, ...], fill: tuple[str, ...], as_json: bool, runner: str, **given: Any) -> int:
    """Makes one net change set of saved ones. They are taken one after the other.

    \b
    Example:
      strandline compose monday.changes tuesday.changes wednesday.changes --out week.changes
    """
    import strandline as sl

    if len(changes_paths) < 2:
        raise click.UsageError("Give at least two change sets, the earliest first.")
    _check_asked(given, as_json=as_json)
    result, *later = sets = [sl.Changes.load(path) for path in changes_paths]
    values = _filling(fill, sets)
    for changes in later:
        result = result.compose(changes, fill=values, runner=runner)
    return _put(result, given, as_json=as_json)


@click.command()
@click.argument("path", type=click.Path())
@writing_options
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows to show.")
@telling
def show(path: str, limit: int, as_json: bool, **given: Any) -> int:
    """What a saved change set holds. Its counts, its columns and some of its rows are shown, or all rows are written
    in another format.

    \b
    Examples:
      strandline show tuesday.changes --limit 5
      strandline show tuesday.changes --format csv --layout side-by-side
    """
    import strandline as sl
    from strandline.report import summary_json, summary_view, summary_words

    piped = takes_stdout(given, as_json=as_json)
    leave_pandas_out()
    changes = sl.Changes.load(path)
    write_changes(changes, {**given, "limit": limit})
    if piped:
        say(summary_words(changes.header))
        return 0
    if as_json:
        emit_json(summary_json(changes.header))
        return 0
    console().print(summary_view(changes.header))
    rows = next(changes.tables(), None)
    if rows is not None and limit:
        shown = rows.slice(0, limit)
        show_table(shown)
    return 0


@click.command()
@click.argument("source", type=click.Path())
@click.option("-k", "--key", multiple=True, required=True, help="Key column; repeat, or separate by commas.")
@click.option("--since", type=int, help="Of a Delta table: the version from which on, itself not included.")
@click.option("--until", type=int, help="Of a Delta table: the last version.  [default: the latest]")
@output_options
@telling
def net(source: str, key: tuple[str, ...], since: int | None, until: int | None, as_json: bool, **given: Any) -> int:
    """The net changes that a log of events tells.

    SOURCE is a Delta table with a change data feed (and --since), or a file of JSON lines with a Debezium message in
    each; - is standard input. Events of one key collapse to one change, once they prove to be the story of one row.
    Exits as `diff` does.

    \b
    Examples:
      strandline net orders_delta --since 3 -k id --out week.changes
      strandline net topic.jsonl -k id --format sql --sql-table orders --dialect postgres
    """
    import strandline as sl

    piped = takes_stdout(given, as_json=as_json, inputs=(source,))
    leave_pandas_out()
    names = names_of(key)
    is_delta = os.path.isdir(os.path.join(source, "_delta_log"))
    if is_delta and since is None:
        raise click.UsageError("of a Delta table say --since, the version that you have")
    if not is_delta and (since is not None or until is not None):
        raise click.UsageError("--since and --until are for Delta tables; messages are taken as they stand")
    if is_delta:
        result = sl.Changes.from_cdf(source, since or 0, until, key=names)
    else:
        result = sl.Changes.from_debezium(source, key=names)
    return _deliver(result, given, piped=piped, as_json=as_json)


@click.command()
@store_argument
@click.argument("table", required=False)
@click.option("--since", required=True, metavar="STATE", help=f"The older state: {STATE}.")
@click.option("--until", metavar="STATE", help="The newer state.  [default: now]")
@output_options
@version_option
@telling
def changes(store: str, table: str | None, since: str, until: str | None, as_json: bool, **given: Any) -> int:
    """What changed in STORE, or in one TABLE, since a state. Only pages that differ are read.

    Exits with 0 if nothing changed, 1 if rows or columns did, or tables came, went or were renamed, 2 on trouble.

    \b
    Examples:
      strandline changes shop --since monday
      strandline changes shop orders --since monday
      strandline changes shop orders --since monday --until tuesday --out tuesday.changes
    """
    from strandline.pages import parse_at

    piped = takes_stdout(given, as_json=as_json)
    if table is None and (piped or given["out"] or given["append_path"] or given["html_path"]):
        raise click.UsageError("say which TABLE: the changes of several don't go into one file")
    with tables_of(store, given["version"]) as opened:
        older, newer = parse_at(opened.pages, since), parse_at(opened.pages, until)
        if table is None:
            return _show_all(opened.all_changes(since=older, until=newer), as_json=as_json)
        result = opened.changes(table, since=older, until=newer)
    return _deliver(result, given, piped=piped, as_json=as_json)


def _show_all(changed: StoreChanges, *, as_json: bool) -> int:
    """A line for each table that changed, came, went or got another name."""
    from strandline.report import summary_json

    noted = {name: [f"was {former}"] for name, former in changed.renamed.items()}
    for name, one in changed.tables.items():
        if one.header.counts.rows or _drifted(one.header):
            noted[name] = [*noted.get(name, ()), *_drifted(one.header)]
    if as_json:
        tables = {name: summary_json(one.header) for name, one in changed.tables.items()}
        came_and_went = {"created": list(changed.created), "dropped": list(changed.dropped), "renamed": changed.renamed}
        emit_json({"tables": tables, **came_and_went})
    else:
        counts = {name: changed.tables[name].header.counts for name in noted}
        lines: list[tuple[Any, ...]] = [
            (name, one.inserted, one.updated, one.deleted, ", ".join(noted[name])) for name, one in counts.items()
        ]
        lines += [(name, None, None, None, "dropped") for name in changed.dropped]
        lines += [(name, None, None, None, "created") for name in changed.created]
        if lines:
            in_order = sorted(lines, key=lambda line: str(line[0]))
            show_rows(("table", "inserted", "updated", "deleted", "columns"), in_order)
        else:
            say("Nothing changed.")
    return 1 if noted or changed.created or changed.dropped else 0


def _drifted(header: Header) -> tuple[str, ...]:
    return (*header.added, *header.removed, *header.retyped)


def _deliver(result: Changes, given: dict[str, Any], *, piped: bool, as_json: bool) -> int:
    """Write a change set where it was asked for, and say what it holds; the exit code."""
    from strandline.report import summary_json, summary_words

    write_changes(result, given)
    if piped:
        say(summary_words(result.header))
    elif as_json:
        emit_json(summary_json(result.header))
    else:
        _print(result, given["limit"])
    return 1 if result.header.counts.rows or _drifted(result.header) else 0


def _print(result: Changes, limit: int) -> None:
    from strandline.report import pick_examples, summary_view

    shown = pick_examples(result.to_set(), limit) if limit else []
    console().print(summary_view(result.header, examples=shown))
