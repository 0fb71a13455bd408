"""The data sources: `strandline`, a table, what-if or view of a store at one state, or what changed in it;
`strandline.diff`, what changed between two extracts.

Spark makes an instance and asks its schema when `load()` is called, and pickles it; that pins the state, or runs the
differential, in the process that called `register`. Reading is planned later, from the pickled instance, so every
action sees the same state. With `.schema(…)`, and over Connect, Spark does nothing at `load()`: there the session's
reader pins the state and passes it on (`register`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructType

from strandline.errors import InputError, SchemaError, StrandlineError
from strandline.spark_source.leases import ChangeParts, Leases, LeaseServerAddress, PinnedState, call_leases
from strandline.spark_source.options import (
    DIFF_EXAMPLE,
    DIFF_OPTIONS,
    ReadRequest,
    check_known,
    is_stream,
    parse_names,
    read_request,
    required,
    stream_request,
    without_traceback,
    write_request,
)
from strandline.spark_source.readers import (
    ChangeRows,
    PrunedTableRows,
    TableRows,
    ViewRows,
    WhatIfRows,
    holds_view,
    holds_what_if,
    table_schema,
    view_schema,
    what_if_schema,
)
from strandline.spark_source.stream import COMMIT, ChangeStream, RefusedStream, check_version
from strandline.spark_source.writer import TableWriter, check_write
from strandline.values import spark_struct


class TableSource(DataSource):  # type: ignore[misc]
    """`strandline`. `register` sets `lease_server`."""

    lease_server: ClassVar[LeaseServerAddress | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._content: PinnedState | ChangeParts | None = None

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> StructType:
        with without_traceback():
            if is_stream(self.options):
                return spark_struct(_stream_columns(self._stream()[1]))
            request = read_request(self.options)
            return spark_struct(self.columns(request))

    def reader(self, schema: StructType) -> DataSourceReader:
        with without_traceback():
            request = read_request(self.options)
            wanted = select_fields(self.columns(request), schema, f"reading {request.table}")
            content = self._content_of(request)
            if isinstance(content, ChangeParts):
                return ChangeRows(content, wanted)
            if holds_what_if(content, request.table):
                return WhatIfRows(content, request.table, wanted, request.where)
            if holds_view(content, request.table):
                return ViewRows(content, request, wanted)
            kind = PrunedTableRows if request.pushdown else TableRows
            return kind(content, request.table, wanted, request.where)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        try:
            request = stream_request(self.options)
            url, rows = self._stream()
            return ChangeStream(request, url, select_fields(_stream_columns(rows), schema, "following changes"), rows)
        except StrandlineError as error:
            return RefusedStream(error)

    def _stream(self) -> tuple[str, pa.Schema]:
        check_version()
        url_and_columns: tuple[str, pa.Schema] = call_leases(
            self.lease_server, Leases.stream_columns, stream_request(self.options)
        )
        return url_and_columns

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with without_traceback():
            request = write_request(self.options, overwrite=overwrite)
            process = call_leases(self.lease_server, Leases.store_process, request.path)
            return TableWriter(check_write(request, process, schema), self.lease_server)

    def columns(self, request: ReadRequest) -> pa.Schema:
        """The columns that a request can give; the first call pins the state."""
        content = self._content_of(request)
        if isinstance(content, ChangeParts):
            return content.header.rows_schema
        if holds_what_if(content, request.table):
            return what_if_schema(content, request)
        if request.as_of is not None:
            hint = "Use at; as_of chooses the changes of a what-if"
            raise InputError(f"{request.table} is no what-if", doing="reading as of a date", hint=hint)
        if holds_view(content, request.table):
            return view_schema(content, request)
        return table_schema(content, request)

    def _content_of(self, request: ReadRequest) -> PinnedState | ChangeParts:
        """The pinned state, or the computed changes; kept in this instance, and pickled with it."""
        if self._content is None:
            if request.since is not None:
                self._content = call_leases(self.lease_server, Leases.changes, request)
            elif request.pinned is not None:
                self._content = PinnedState.from_text(request.pinned)
            else:
                self._content = call_leases(self.lease_server, Leases.pin, request)
        return self._content


def _stream_columns(rows: pa.Schema) -> pa.Schema:
    return rows.append(pa.field(COMMIT, pa.int64()))


def select_fields(schema: pa.Schema, asked: StructType, doing: str) -> pa.Schema:
    """The fields that a user's `.schema(…)` asks for, which must be there under these names and types."""
    present = {field.name: field for field in spark_struct(schema).fields}
    for field in asked.fields:
        same = present.get(field.name)
        if same is None or same.dataType != field.dataType:
            what = "is not there" if same is None else f"is {same.dataType.simpleString()}"
            listed = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in present.values())
            raise SchemaError(
                f"column {field.name!r} of {field.dataType.simpleString()} was asked for, but it {what}",
                doing=doing,
                hint=f"Ask for some of: {listed}",
            )
    return pa.schema([schema.field(field.name) for field in asked.fields])


DOING = "comparing two extracts"


class DiffSource(DataSource):  # type: ignore[misc]
    """`strandline.diff`. `register` sets `lease_server`."""

    lease_server: ClassVar[LeaseServerAddress | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parts: ChangeParts | None = None

    @classmethod
    def name(cls) -> str:
        return "strandline.diff"

    def schema(self) -> StructType:
        with without_traceback():
            return spark_struct(self._computed().header.rows_schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        with without_traceback():
            parts = self._computed()
            return ChangeRows(parts, select_fields(parts.header.rows_schema, schema, DOING))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with without_traceback():
            raise InputError("it can only be read", doing="writing to strandline.diff", hint='Use format("strandline")')

    def _computed(self) -> ChangeParts:
        if self._parts is None:
            old = required(self.options, "old", DOING, DIFF_EXAMPLE)
            new = required(self.options, "new", DOING, DIFF_EXAMPLE)
            self._parts = call_leases(self.lease_server, Leases.diff, old, new, diff_options(self.options))
        return self._parts


def diff_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options as `sl.diff` takes them."""
    check_known(options, DIFF_OPTIONS, DOING, DIFF_EXAMPLE)
    given: dict[str, Any] = {
        name: options[name] for name in ("algorithm", "where", "duplicates", "memory") if name in options
    }
    given |= {name: parse_names(options.get(name)) for name in ("columns", "ignore") if name in options}
    if "format" in options:
        given |= {"old_format": options["format"], "new_format": options["format"]}
    return {**given, "key": parse_names(options.get("key")) or None}
