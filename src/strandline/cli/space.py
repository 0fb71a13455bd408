"""`strandline space`: who holds which bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from strandline.cli.output import emit_json
from strandline.cli.stores import json_option, show_rows, size, storage_of, store_argument

if TYPE_CHECKING:
    from strandline.pages import Holding, Part


@click.command()
@store_argument
@click.option(
    "--by",
    type=click.Choice(["version", "snapshot", "table"]),
    multiple=True,
    help="Count together what belongs to one branch, snapshot or table; may be repeated.  [default: all three]",
)
@json_option
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
    from strandline.pages import space as held

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
                size(row["bytes"]),
                size(row["alone"]),
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
    if row["fork"]:
        return f"(held for the branch {row['fork']})"
    return row["snapshot"] or "(now)"
