"""Headers and counts as plain JSON, for work items and for the manifest of a saved set."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from strandline.changes.shape import COUNTED, KEYED, Counts, Header
from strandline.relations.scan import schema_from_text, schema_to_text


def header_to_json(header: Header) -> dict[str, Any]:
    return {
        "form": header.form,
        "old_schema": schema_to_text(header.old_schema),
        "new_schema": schema_to_text(header.new_schema),
        "key": list(header.key),
        "has_before": header.has_before,
        "has_changed": header.has_changed,
        "inexact": header.inexact,
        "fill": None if header.fill is None else _table_to_text(header.fill),
        "counts": counts_to_json(header.counts),
        "source": header.source,
        "target": header.target,
    }


def header_from_json(record: Mapping[str, Any]) -> Header:
    """The header that `header_to_json` described; anything else raises `ValueError`, `KeyError` or Arrow's errors."""
    if record["form"] not in (KEYED, COUNTED):
        raise ValueError(f"unknown form {record['form']!r}")
    return Header(
        form=record["form"],
        old_schema=schema_from_text(record["old_schema"]),
        new_schema=schema_from_text(record["new_schema"]),
        key=tuple(str(name) for name in record["key"]),
        has_before=bool(record["has_before"]),
        has_changed=bool(record["has_changed"]),
        inexact=bool(record["inexact"]),
        fill=None if record["fill"] is None else _table_from_text(record["fill"]),
        counts=counts_from_json(record["counts"]),
        source=str(record["source"]),
        target=str(record["target"]),
    )


def counts_to_json(counts: Counts) -> dict[str, Any]:
    columns = None if counts.columns is None else dict(counts.columns)
    return {
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "unchanged": counts.unchanged,
        "columns": columns,
    }


def counts_from_json(record: Mapping[str, Any]) -> Counts:
    return Counts(**record)


def _table_to_text(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii")


def _table_from_text(text: str) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text))).read_all()
