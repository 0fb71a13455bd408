"""Joins over relations that are too large for one process: kernels, one for each stretch of the largest relation.

The other inputs go to every kernel: the change, which is small, and whatever else the query reads. A join distributes
over the rows of any one input, so the results need only be put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.changes.matching import Room
from strandline.changes.parts import read_parts, write_part
from strandline.engine import INLINE_LIMIT, Attempt, Result, Spool, WorkItem, choose_runner, kernel
from strandline.relations import Scan, open_relation, read_scan
from strandline.relations.no_rows import no_rows
from strandline.storage import Storage
from strandline.tables import table_relation
from strandline.views.joining import Join, joined
from strandline.views.site import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS = 2
"""Work items for each processor: stretches differ in what they cost."""


@dataclass(frozen=True)
class Running:
    """Where work runs: `auto` takes this process below the limit and Spark above it. `storage` holds the pages."""

    runner: str = "auto"
    session: SparkSession | None = None
    storage: Storage | None = None

    @property
    def inline_limit(self) -> float:
        """Relations of so many bytes are not read here; kernels do."""
        if self.storage is None or self.runner == "inline":
            return float("inf")
        return 0 if self.runner == "spark" else INLINE_LIMIT


@dataclass(frozen=True)
class _Input:
    alias: str
    scans: list[Scan]

    @property
    def bytes(self) -> int:
        return sum(scan.bytes for scan in self.scans)


def run_join(
    join: Join, known: Mapping[str, pa.Table], whole: Mapping[str, tuple[Site, str]], running: Running
) -> pa.Table:
    """The rows of the query over tables in memory and whole relations, with `_count`; not net."""
    with Spool() as spool:
        inputs = [_Input(alias, _scans_of(rows, spool)) for alias, rows in known.items()]
        inputs += [
            _Input(alias, _scans(site, relation, join, alias, running)) for alias, (site, relation) in whole.items()
        ]
        runner = choose_runner(running.runner, sum(one.bytes for one in inputs), running.session)
        items = _items(join, inputs, runner.parallelism * ITEMS)
        outcomes = runner.run(join_pages, items, spool, "joining")
        return read_parts([outcome.result["rows"] for outcome in outcomes], join.rows_schema)


def whole_items(join: Join, whole: Mapping[str, tuple[Site, str]], running: Running, size: int) -> list[dict[str, Any]]:
    """The query over whole relations as work items, each with about so many bytes of the largest of them."""
    inputs = [_Input(alias, _scans(site, relation, join, alias, running)) for alias, (site, relation) in whole.items()]
    return _items(join, inputs, max(one.bytes for one in inputs) // size + 1)


def _items(join: Join, inputs: Sequence[_Input], count: int) -> list[dict[str, Any]]:
    largest = max(inputs, key=lambda one: one.bytes)
    others = [one for one in inputs if one is not largest]
    return [_item(join, [_Input(largest.alias, piece), *others]) for piece in _pieces(largest.scans, count)]


@kernel
def join_pages(item: WorkItem, attempt: Attempt) -> Result:
    """The query over one stretch of its largest relation."""
    rows, read = joined_item(item, Room(attempt.memory, attempt.spool))
    path = attempt.path("rows.parquet")
    write_part(rows, path)
    return {"rows": path, "rows_read": read}


def joined_item(item: WorkItem, room: Room | None = None) -> tuple[pa.Table, int]:
    """The rows of one work item, with `_count`, and how many rows were read for them."""
    join = Join.from_json(item["join"])
    tables = {}
    for alias, scans in item["inputs"].items():
        read = [Scan.from_json(scan) for scan in scans]
        columns = [name for name in (*join.columns_of(alias), "_count") if name in read[0].schema.names]
        batches = [batch for scan in read for batch in read_scan(scan, columns or read[0].schema.names[:1])]
        tables[alias] = pa.Table.from_batches(batches) if batches else no_rows(read[0].schema)
    return joined(join, tables, room), sum(len(table) for table in tables.values())


def _item(join: Join, inputs: Sequence[_Input]) -> dict[str, Any]:
    return {"join": join.to_json(), "inputs": {one.alias: [scan.to_json() for scan in one.scans] for one in inputs}}


def _scans_of(rows: pa.Table, spool: Spool) -> list[Scan]:
    return [part.scan for part in open_relation(rows, spool=spool).parts()]


def _scans(site: Site, relation: str, join: Join, alias: str, running: Running) -> list[Scan]:
    assert running.storage is not None
    if site.is_table(relation):
        return [part.scan for part in table_relation(site.view, relation, site.cache, running.storage).parts()]
    return [part.scan for part in open_relation(site.rows(relation, join.columns_of(alias))).parts()]


def _pieces(scans: Sequence[Scan], count: int) -> list[list[Scan]]:
    """The scans in so many stretches of about equal bytes, none of them empty."""
    total, size = sum(scan.bytes for scan in scans) or 1, 0
    pieces: list[list[Scan]] = [[]]
    for scan in scans:
        if pieces[-1] and size >= total * len(pieces) / count:
            pieces.append([])
        pieces[-1].append(scan)
        size += scan.bytes
    return pieces if scans else []
