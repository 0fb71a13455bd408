"""`strandline query`, `log`, `space` and `check`: SQL over a store's tables, its history, who holds which bytes, and
whether everything is in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from strandline.cli.output import (
    answer,
    complain,
    emit_json,
    place,
    row_options,
    running,
    say,
    span,
    takes_stdout,
    target_of,
    telling,
)
from strandline.cli.store_access import (
    STATE,
    control,
    count_of,
    iso_time,
    local_time,
    show_rows,
    show_table,
    storage_of,
    store_argument,
    tables_of,
    version_of,
    version_option,
)
from strandline.engine import byte_count

if TYPE_CHECKING:
    from strandline.pages import Holding, Part
    from strandline.store import Store


@click.command()
@store_argument
@click.argument("sql")
@click.option("--at", metavar="STATE", help=f"Ask an older state: {STATE}.")
@row_options
@click.option(
    "--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Rows to print; 0 prints all."
)
@version_option
@running
def query(
    store: str,
    sql: str,
    at: str | None,
    limit: int,
    version: str,
    as_json: bool,
    runner: str,
    **given: Any,
) -> int:
    """Queries tables, what-ifs and views of STORE in SQL. All are read at one state.

    With --json all rows are printed, as the list `rows` of one object.

    \b
    Examples:
      strandline query shop "SELECT state, count(*) FROM orders GROUP BY state"
      strandline query shop "SELECT * FROM orders WHERE qty > 3" --at monday --out many.parquet
      strandline query shop "SELECT * FROM orders" --format jsonl | jq .qty
    """
    from strandline.pages import parse_at
    from strandline.report import check_objects, write_rows

    takes_stdout(given, as_json=as_json)
    out, format_ = target_of(given)
    with tables_of(store, version) as opened:
        rows = opened.query(sql, at=parse_at(opened.pages, at), runner=runner)
        _tell_of_old_rows(opened, sql, at)
    if out:
        write_rows(rows, out, format_)
        return answer(
            {"rows": len(rows), "out": out}, f"{count_of(len(rows), 'row')} in {place(out)}.", as_json=as_json
        )
    if as_json:
        check_objects(rows.column_names, "printing rows as JSON")
        emit_json({"columns": rows.column_names, "rows": rows.to_pylist()})
        return 0
    shown = rows.slice(0, limit or None)
    show_table(shown)
    if len(shown) < len(rows):
        say(f"{len(shown):,} of {len(rows):,} rows; --limit 0 prints all.")
    return 0


def _tell_of_old_rows(store: Store, sql: str, at: str | None) -> None:
    """Say of which commit rows of stored views are that no commit keeps, where they are behind."""
    if at is not None:
        return
    from strandline.views import relations_named

    named = {name.lower() for name in relations_named(sql)}
    for view in store.views():
        if view.name.lower() in named and view.stored and view.behind != 0:
            status = store.view(view.name).status()
            since = "" if view.behind is None else f" by {span(view.behind)}"
            complain(f"{view.name} is as of commit {status['position']}, behind{since}")


@click.command()
@store_argument
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Entries to show; 0 shows all."
)
@version_option
@telling
def log(store: str, limit: int, version: str, as_json: bool) -> int:
    """What happened to a branch, newest first. Told are commits, snapshots, branches, drops.

    \b
    Example:
      strandline log shop --limit 5
    """
    with control(store) as pages:
        entries = version_of(pages, version).log()[::-1]
    entries = entries[: limit or None]
    if as_json:
        emit_json(
            {
                "version": version,
                "log": [
                    {"commit": one.commit, "when": iso_time(one.when), "kind": one.kind, "message": one.message}
                    for one in entries
                ],
            }
        )
        return 0
    show_rows(
        ("commit", "when", "what", "message"), [(e.commit, local_time(e.when), e.kind, e.message) for e in entries]
    )
    return 0


@click.command()
@store_argument
@click.option(
    "--by",
    type=click.Choice(["version", "snapshot", "table"]),
    multiple=True,
    help="Count together what belongs to one branch, snapshot or table; may be repeated.  [default: all three]",
)
@telling
def space(store: str, by: tuple[str, ...], as_json: bool) -> int:
    """Who holds which bytes: per branch, snapshot and table.

    Pages are shared, so one page may count for several holders. `alone` is what nobody else holds: what dropping the
    holder would give back. A branch stands on a state of its parent, which is held for it: by version, that counts for
    the branch.

    \b
    Examples:
      strandline space shop
      strandline space shop --by table
    """
    from strandline.pages import EVERY
    from strandline.pages import space_held as held

    chosen = cast("tuple[Part, ...]", by) or EVERY
    rows = [_row(one) for one in held(storage_of(store), chosen)]
    if as_json:
        emit_json({"space": rows, "alone": sum(row["alone"] for row in rows)})
        return 0
    show_rows(
        ("branch", "state", "table", "pages", "bytes", "alone"),
        [
            (
                row["version"] or "(all)",
                _state(row) if "snapshot" in chosen else "(all)",
                row["table"] or ("(catalog)" if "table" in chosen else "(all)"),
                row["pages"],
                byte_count(row["bytes"]),
                byte_count(row["alone"]),
            )
            for row in rows
        ],
    )
    return 0


def _row(one: Holding) -> dict[str, Any]:
    return {
        "version": one.version or None,
        "snapshot": one.snapshot or None,
        "fork": one.fork or None,
        "table": one.table or None,
        "pages": one.pages,
        "bytes": one.bytes,
        "alone": one.own,
    }


def _state(row: dict[str, Any]) -> str:
    from strandline.pages import is_own_name

    if row["fork"]:
        return f"(held for the branch {row['fork']})"
    if is_own_name(row["snapshot"] or ""):
        return "(held for a copy)"
    return row["snapshot"] or "(now)"


@click.command()
@store_argument
@click.option("--repair", is_flag=True, help="Delete objects that are proved unreachable.")
@telling
def check(store: str, repair: bool, as_json: bool) -> int:
    """Verifies every checksum and every invariant of STORE. Exits with 0 if all is well, 1 if not, 2 on trouble.

    \b
    Example:
      strandline check shop
    """
    from strandline.pages import check_store as check_pages

    report = check_pages(storage_of(store), repair=repair)
    if as_json:
        emit_json(
            {
                "ok": report.ok,
                "objects": report.objects,
                "bytes": report.bytes,
                "findings": [{"invariant": f.invariant, "where": f.where, "what": f.what} for f in report.findings],
                "unreachable": report.unreachable,
                "removed": report.removed,
            }
        )
        return 0 if report.ok else 1
    if report.findings:
        show_rows(
            ("invariant", "where", "what"),
            [(one.invariant or "checksum", one.where, one.what) for one in report.findings],
        )
    if report.removed:
        say(f"Deleted as unreachable: {count_of(len(report.removed), 'object')}.")
    if report.unreachable:
        what = "is one object" if len(report.unreachable) == 1 else f"are {len(report.unreachable):,} objects"
        say(f"There {what} that nothing reaches, such as {report.unreachable[0]}; --repair deletes what is proved so.")
    if report.ok:
        say(f"All is well: {count_of(report.objects, 'page')}, {byte_count(report.bytes)}.")
    return 0 if report.ok else 1
