"""Any relation as the pieces of a first content, for tests of streaming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from strandline.engine import Attempt, Result, WorkItem, cut_by_bytes, kernel
from strandline.relations import Relation, Scan, read_scan
from strandline.replication.delivery import Pieces, write_piece
from strandline.values import no_rows

PIECE_BYTES = 2000
"""How much of a relation one piece should have."""


def relation_pieces(relation: Relation, columns: Sequence[str], facts: Mapping[str, Any] | None = None) -> Pieces:
    """The pieces of a relation. It must be the same one when a stream goes on."""
    groups = cut_by_bytes(relation.parts(list(columns)), lambda part: part.bytes, PIECE_BYTES) or [[]]
    schema = pa.schema([pa.field(name, relation.schema.field(name).type) for name in columns])
    empty = schema.serialize().to_pybytes().hex()
    items = [
        {"scans": [part.scan.to_json() for part in group], "columns": list(columns), "schema": empty}
        for group in groups
    ]
    return Pieces(scan_piece, items, facts or {})


@kernel
def scan_piece(item: WorkItem, attempt: Attempt) -> Result:
    """Reads the scans of a piece."""
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(item["schema"])))
    scans = [Scan.from_json(record) for record in item["scans"]]
    batches = [batch for scan in scans for batch in read_scan(scan, item["columns"])]
    return write_piece(pa.Table.from_batches(batches).cast(schema) if batches else no_rows(schema), attempt)
