"""The data source `strandline`: a table or what-if of a store, its rows at one state or what changed in it.

Spark makes an instance and asks its schema when `load()` is called, and pickles it; that pins the state. Reading is
planned once, later, from the pickled instance, so every action sees the same state. With `.schema(…)`, and over
Connect, Spark does nothing at `load()`: there the reader pins the state itself and hands it along (`pinning`).

The data source `strandline.diff`: what changed between two extracts, as rows.

The differential runs once, in the process that called `register`, when `load()` is called.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from strandline.errors import InputError, SchemaError, StrandlineError
from strandline.spark_source.leases import Holdings, KeeperAddress, Parts, Pinned, ask
from strandline.spark_source.options import (
    DIFF_EXAMPLE,
    DIFFING,
    ReadRequest,
    check_known,
    is_stream,
    names,
    plainly,
    read_request,
    required,
    stream_request,
    write_request,
)
from strandline.spark_source.readers import (
    ChangeRows,
    PrunedTableRows,
    TableRows,
    WhatIfRows,
    holds_what_if,
    table_schema,
    what_if_schema,
)
from strandline.spark_source.stream import COMMIT, ChangeStream, Refused
from strandline.spark_source.writer import TableWriter, checked
from strandline.values import spark_schema


class TableSource(DataSource):  # type: ignore[misc]
    """See the module. `keeper` is set by `register`."""

    keeper: ClassVar[KeeperAddress | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._found: Pinned | Parts | None = None

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> StructType:
        with plainly():
            if is_stream(self.options):
                return struct_of(_stream_columns(self._stream()[1]))
            request = read_request(self.options)
            return struct_of(self.columns(request))

    def reader(self, schema: StructType) -> DataSourceReader:
        with plainly():
            request = read_request(self.options)
            wanted = chosen(self.columns(request), schema, f"reading {request.table}")
            found = self._found
            if isinstance(found, Parts):
                return ChangeRows(found, wanted)
            assert found is not None
            if holds_what_if(found, request.table):
                return WhatIfRows(found, request.table, wanted, request.where)
            kind = PrunedTableRows if request.pushdown else TableRows
            return kind(found, request.table, wanted, request.where)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        try:
            request = stream_request(self.options)
            url, rows = self._stream()
            return ChangeStream(request, url, chosen(_stream_columns(rows), schema, "following changes"), rows)
        except StrandlineError as error:
            return Refused(error)

    def _stream(self) -> tuple[str, pa.Schema]:
        found: tuple[str, pa.Schema] = ask(self.keeper, Holdings.stream, stream_request(self.options))
        return found

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with plainly():
            request = write_request(self.options, overwrite=overwrite)
            enlisted = ask(self.keeper, Holdings.enlist, request.path)
            return TableWriter(checked(request, enlisted, schema), self.keeper)

    def columns(self, request: ReadRequest) -> pa.Schema:
        """The columns that a request can give; the first call pins the state."""
        if self._found is None:
            self._found = self._find(request)
        if isinstance(self._found, Parts):
            return self._found.header.rows_schema
        assert self._found is not None
        if holds_what_if(self._found, request.table):
            return what_if_schema(self._found, request)
        if request.as_of is not None:
            hint = "Use at; as_of chooses the changes of a what-if"
            raise InputError(f"{request.table} is no what-if", doing="reading as of a date", hint=hint)
        return table_schema(self._found, request)

    def _find(self, request: ReadRequest) -> Pinned | Parts:
        if request.since is not None:
            return ask(self.keeper, Holdings.changes, request)  # type: ignore[no-any-return]
        if request.pinned is not None:
            return Pinned.from_text(request.pinned)
        return ask(self.keeper, Holdings.pin, request)  # type: ignore[no-any-return]


def _stream_columns(rows: pa.Schema) -> pa.Schema:
    return rows.append(pa.field(COMMIT, pa.int64()))


def struct_of(schema: pa.Schema) -> StructType:
    """Spark's schema for rows of this one."""
    return from_arrow_schema(spark_schema(schema), prefer_timestamp_ntz=True)


def chosen(schema: pa.Schema, asked: StructType, doing: str) -> pa.Schema:
    """The fields that a user's `.schema(…)` asks for, which must be there under these names and types."""
    there = {field.name: field for field in struct_of(schema).fields}
    for field in asked.fields:
        found = there.get(field.name)
        if found is None or found.dataType != field.dataType:
            what = "is not there" if found is None else f"is {found.dataType.simpleString()}"
            listed = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in there.values())
            raise SchemaError(
                f"column {field.name!r} of {field.dataType.simpleString()} was asked for, but it {what}",
                doing=doing,
                hint=f"Ask for some of: {listed}",
            )
    return pa.schema([schema.field(field.name) for field in asked.fields])


DOING = "comparing two extracts"


class DiffSource(DataSource):  # type: ignore[misc]
    """See the module. `keeper` is set by `register`."""

    keeper: ClassVar[KeeperAddress | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parts: Parts | None = None

    @classmethod
    def name(cls) -> str:
        return "strandline.diff"

    def schema(self) -> StructType:
        with plainly():
            return struct_of(self._computed().header.rows_schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        with plainly():
            parts = self._computed()
            return ChangeRows(parts, chosen(parts.header.rows_schema, schema, DOING))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with plainly():
            raise InputError("it can only be read", doing="writing to strandline.diff", hint='Use format("strandline")')

    def _computed(self) -> Parts:
        if self._parts is None:
            old = required(self.options, "old", DOING, DIFF_EXAMPLE)
            new = required(self.options, "new", DOING, DIFF_EXAMPLE)
            self._parts = ask(self.keeper, Holdings.diff, old, new, diff_options(self.options))
        return self._parts


def diff_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options as `sl.diff` takes them."""
    check_known(options, DIFFING, DOING, DIFF_EXAMPLE)
    given: dict[str, Any] = {
        name: options[name] for name in ("algorithm", "where", "duplicates", "memory") if name in options
    }
    given |= {name: names(options.get(name)) for name in ("columns", "ignore") if name in options}
    if "format" in options:
        given |= {"old_format": options["format"], "new_format": options["format"]}
    return {**given, "key": names(options.get("key")) or None}
