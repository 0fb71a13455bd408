"""What is asked of a differential: which columns of two sides meet, by which key, and what counts as the same.

A `Comparison` is plain facts and travels to kernels as JSON. A `Side` is what one kernel reads of one relation: scans,
which of their columns, and what these are called here. `read_side` gives the rows as the comparison sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from strandline.changes.shape import COUNTED, Header, counted_header, keyed_header
from strandline.detect.comparators import Comparator, comparators_for
from strandline.detect.pairing import COPY
from strandline.relations import Scan
from strandline.relations.expressions import parse_condition
from strandline.relations.no_rows import no_rows
from strandline.relations.read import read_scan, read_table
from strandline.relations.scan import schema_from_text, schema_to_text


@dataclass(frozen=True)
class Comparison:
    """The question. `old_schema` and `new_schema` are the sides' columns that take part, under their common names.

    Without a key rows are compared as a whole and counted. `rules` are comparators by column, kind or `*`. With `pair`
    the key need not be unique: rows of one key are paired by likeness, and `_copy` numbers them in the answer.
    """

    old_schema: pa.Schema
    new_schema: pa.Schema
    key: tuple[str, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    pair: bool = False

    @cached_property
    def header(self) -> Header:
        """The header of the change set that answers the question, its counts still empty."""
        if not self.key:
            return counted_header(self.old_schema, self.new_schema)
        old, new, key = self.old_schema, self.new_schema, self.key
        if self.pair:
            copy = pa.field(COPY, pa.int32())
            old, new, key = old.append(copy), new.append(copy), (*key, COPY)
        header = keyed_header(old, new, key)
        return replace(header, inexact=any(not rule.is_equivalence for rule in self._comparators(header).values()))

    @cached_property
    def comparators(self) -> dict[str, Comparator]:
        """The comparator of each value column that has one."""
        return self._comparators(self.header)

    def _comparators(self, header: Header) -> dict[str, Comparator]:
        if not self.rules:
            return {}
        values = pa.schema(
            [field for field in header.after_schema if header.form == COUNTED or field.name in header.values]
        )
        return comparators_for(values, self.rules)

    @cached_property
    def old_schema_shared(self) -> pa.Schema:
        """The old side's columns that are compared."""
        return pa.schema([self.old_schema.field(name) for name in self.header.columns if name != COPY])

    @cached_property
    def new_schema_shared(self) -> pa.Schema:
        """The new side's columns that are compared."""
        return pa.schema([self.new_schema.field(name) for name in self.header.columns if name != COPY])

    def to_json(self) -> dict[str, Any]:
        return {
            "old_schema": schema_to_text(self.old_schema),
            "new_schema": schema_to_text(self.new_schema),
            "key": list(self.key),
            "rules": dict(self.rules),
            "pair": self.pair,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Comparison:
        return Comparison(
            old_schema=schema_from_text(record["old_schema"]),
            new_schema=schema_from_text(record["new_schema"]),
            key=tuple(record["key"]),
            rules=record["rules"],
            pair=record["pair"],
        )


@dataclass(frozen=True)
class Side:
    """Scans of one relation. `columns` are read from the files and come out under the names in `names`.

    `where` is the condition that rows must meet; it may speak of columns that are not compared, which then stand
    in `columns` too and are dropped by `schema`.
    """

    scans: tuple[Scan, ...]
    columns: tuple[str, ...]
    names: tuple[str, ...]
    schema: pa.Schema
    where: str | None = None

    def with_scans(self, scans: Sequence[Scan]) -> Side:
        return replace(self, scans=tuple(scans))

    def to_json(self) -> dict[str, Any]:
        return {
            "scans": [scan.to_json() for scan in self.scans],
            "columns": list(self.columns),
            "names": list(self.names),
            "schema": schema_to_text(self.schema),
            "where": self.where,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Side:
        return Side(
            scans=tuple(Scan.from_json(scan) for scan in record["scans"]),
            columns=tuple(record["columns"]),
            names=tuple(record["names"]),
            schema=schema_from_text(record["schema"]),
            where=record["where"],
        )

    @property
    def bytes(self) -> int:
        return sum(scan.bytes for scan in self.scans)


def read_side(side: Side) -> pa.Table:
    """The rows of a side as the comparison sees them: renamed, filtered, only the columns that take part."""
    if not side.scans:
        return no_rows(side.schema)
    return _as_asked(read_table(side.scans, side.columns), side)


def read_side_in_batches(side: Side, batch_rows: int) -> Iterator[pa.Table]:
    """The same rows, in file order, in tables of at most `batch_rows` rows."""
    for scan in side.scans:
        for batch in read_scan(scan, side.columns, batch_rows):
            yield _as_asked(pa.Table.from_batches([batch]), side)


def _as_asked(table: pa.Table, side: Side) -> pa.Table:
    table = table.rename_columns(list(side.names))
    if side.where is not None:
        table = table.filter(parse_condition(side.where, table.schema).mask(table))
    return table.select(side.schema.names)
