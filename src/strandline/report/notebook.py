"""What a notebook shows of an object: a caption and a few rows, small enough to stand below a cell.

Every value passes through `safe`: whatever it holds, it is text.
"""

from __future__ import annotations

import pyarrow as pa

from strandline.changes import Changes
from strandline.differential import Differential
from strandline.errors import shortened
from strandline.relations import Relation, relation_batches
from strandline.report.html import EXAMPLES, html_report, safe
from strandline.report.positions import positions_by_key
from strandline.report.run_facts import facts_of
from strandline.report.values import python_values, text
from strandline.values import no_rows

SHOWN, WIDTH = 10, 60


def rows_html(caption: str, rows: pa.Table, more: str = "") -> str:
    """A table of the first rows, with a caption above and a line below."""
    shown = rows.slice(0, SHOWN)
    columns = [python_values(column) for column in shown.columns]
    head = "".join(f"<th>{safe(name)}</th>" for name in shown.column_names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in zip(*columns, strict=True))
    below = f"<p>{safe(more)}</p>" if more else ""
    return (
        f"<div><p><b>{safe(caption)}</b></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
    )


def schema_html(caption: str, schema: pa.Schema) -> str:
    """The columns and their types, where rows would cost too much to show."""
    columns = {"column": schema.names, "type": [str(field.type) for field in schema]}
    shown = pa.table(columns, pa.schema([("column", pa.string()), ("type", pa.string())]))
    left = f"and {len(schema) - SHOWN} more columns" if len(schema) > SHOWN else ""
    return rows_html(caption, shown, left)


def changes_html(changes: Changes) -> str:
    """A change set as a notebook shows it: its counts and its first rows."""
    rows = next(changes.tables(), no_rows(changes.header.rows_schema))
    left = len(changes) - min(len(rows), SHOWN)
    return rows_html(repr(changes).strip("<>"), rows, f"and {left:,} more changes" if left else "")


def changes_page(changes: Changes, limit: int = EXAMPLES) -> str:
    """The whole page of a change set; of a differential, with how it was found."""
    differential = changes if isinstance(changes, Differential) else None
    renames = dict(differential.run.renames) if differential is not None else None
    whole = changes.to_set()
    facts = facts_of(differential.run, differential.header.counts) if differential is not None else None
    where = positions_by_key(whole)
    return html_report(whole.header, whole.rows, facts, where=where, renames=renames, limit=limit)


def first_rows(relation: Relation, count: int = SHOWN) -> pa.Table:
    """The first rows of a relation; no more of its parts is read than that takes."""
    batches, rows = [], 0
    for batch in relation_batches(relation):
        batches.append(batch)
        rows += batch.num_rows
        if rows >= count:
            break
    return pa.Table.from_batches(batches, relation.schema).slice(0, count) if batches else no_rows(relation.schema)


def _cell(value: object) -> str:
    return "<td><i>null</i></td>" if value is None else f"<td>{safe(shortened(text(value), WIDTH))}</td>"
