"""`strandline space`: who holds which bytes."""

from __future__ import annotations

from typing import Any

import click

from strandline.cli.output import emit_json
from strandline.cli.stores import control, json_option, show_rows, size, storage_of, store_argument


@click.command()
@store_argument
@json_option
def space(store: str, as_json: bool) -> int:
    """Who holds which bytes: per branch, snapshot and table.

    `alone` is what no other branch or snapshot holds: what dropping it would give back.

    \b
    Example:
      strandline space shop
    """
    from strandline.pages import space as held

    rows: list[dict[str, Any]] = []
    with control(store) as pages:
        named = {name: {one.name for one in pages.version(name).snapshots()} for name in pages.versions()}
    for one in held(storage_of(store)):
        if rows and not one.table and not rows[-1]["table"] and _place(rows[-1]) == (one.version, one.snapshot or None):
            # The page table above all tables, and the catalog, are one to a user.
            rows[-1]["bytes"] += one.bytes
            rows[-1]["alone"] += one.own
            continue
        rows.append(
            {
                "version": one.version,
                "snapshot": one.snapshot or None,
                # What a branch stands on is held like a snapshot, under the branch's name.
                "fork": bool(one.snapshot) and one.snapshot not in named.get(one.version, ()),
                "table": one.table or None,
                "pages": one.pages,
                "bytes": one.bytes,
                "alone": one.own,
            }
        )
    if as_json:
        emit_json({"space": rows, "alone": sum(row["alone"] for row in rows)})
        return 0
    show_rows(
        ("branch", "snapshot", "table", "pages", "bytes", "alone"),
        [
            (
                row["version"],
                f"(below {row['snapshot']})" if row["fork"] else row["snapshot"] or "(now)",
                row["table"] or "(catalog)",
                row["pages"],
                size(row["bytes"]),
                size(row["alone"]),
            )
            for row in rows
        ],
    )
    return 0


def _place(row: dict[str, Any]) -> tuple[str, str | None]:
    return row["version"], row["snapshot"]
