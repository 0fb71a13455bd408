"""What a table is: its columns, its key, its constraints. Kept as JSON in the record that the store has for it.

Every column has a number of its own for life, written into each page as Parquet's field id. So renaming a column,
adding one with a default, or widening a type changes this schema alone, and no page is rewritten: a page that was
written before is brought into the present shape when it is read, which is not done here.

The names of the tables and snapshots that views and what-ifs keep in a store for themselves are defined here too, so
that listing tables and snapshots, or naming a table, imports neither package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from strandline.changes import OURS, RESERVED, check_key
from strandline.errors import SchemaError, did_you_mean, is_broken
from strandline.relations import (
    check_names,
    relation_type,
    schema_from_text,
    schema_to_text,
    table_from_text,
    table_to_text,
)
from strandline.storage import cached_property
from strandline.tables.keys import check_key_types

ROW = "_row"
DELETED = "_deleted"
FIELD_ID = b"PARQUET:field_id"
_ROW_FIELD = pa.field(ROW, pa.int64(), metadata={FIELD_ID: b"0"})


@dataclass(frozen=True)
class Column:
    """`default` is an array of one value: what rows hold that were there before the column was."""

    id: int
    name: str
    type: pa.DataType
    nullable: bool = True
    default: pa.Array | None = None

    def filled(self, count: int) -> pa.Array:
        """What so many of those rows hold."""
        return pa.nulls(count, self.type) if self.default is None else repeat(self.default, count)


def repeat(value: pa.Array, count: int) -> pa.Array:
    """An array of one value as a column."""
    return value if count == 1 else value.take(pa.array(np.zeros(count, dtype=np.int64)))


@dataclass(frozen=True)
class TableSchema:
    """A table's columns and key; `version` counts the changes of the shape."""

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    version: int = 0
    next_id: int = field(default=1)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema that users see."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The columns that are read when none are named: all but those of our own (`OURS`), as copies have them."""
        return tuple(name for name in self.names if not name.startswith(OURS))

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The schema of rows inside the store: `_row` first, every field nullable."""
        return pa.schema([pa.field(ROW, pa.int64()), *(pa.field(c.name, c.type) for c in self.columns)])

    @cached_property
    def image_schema(self) -> pa.Schema:
        """The same without `_row`: rows that come, or that keys are to stand for."""
        return pa.schema(list(self.row_schema)[1:])

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The schema of a base page: the row schema with field ids."""
        numbered = [pa.field(c.name, c.type, metadata={FIELD_ID: str(c.id).encode()}) for c in self.columns]
        return pa.schema([_ROW_FIELD, *numbered])

    @cached_property
    def overlay_schema(self) -> pa.Schema:
        return self.file_schema.append(pa.field(DELETED, pa.bool_()))

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The columns that pages are ordered by."""
        return self.key or (ROW,)

    @cached_property
    def key_types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.row_schema.field(name).type for name in self.order)

    @cached_property
    def mark(self) -> str:
        """Tells shapes apart, also those of one table in different versions of the store."""
        return hashlib.blake2b(self.to_bytes(), digest_size=8).hexdigest()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise no_column(name, self.names)

    def to_bytes(self) -> bytes:
        return _encoded(self)

    @staticmethod
    def from_bytes(data: bytes) -> TableSchema:
        return _decoded(data)


def refuse_own_columns(names: Sequence[str], doing: str) -> None:
    """Refuses columns that readers would not see, as they don't see ours."""
    ours = [name for name in names if name.lower().startswith(OURS)]
    if ours:
        raise SchemaError(
            f"column {ours[0]!r} has a name that begins as ours do",
            doing=doing,
            hint=f"Rename it: {OURS}… is kept for us",
        )


def refuse_broken_column(name: object, doing: str) -> None:
    """Refuses what can't be stored as a column's name."""
    if isinstance(name, str) and is_broken(name):
        raise SchemaError(f"{name!r} is no name for a column: it holds half of a character", doing=doing)


def new_table_schema(schema: pa.Schema, key: Sequence[str] = (), not_null: Sequence[str] = ()) -> TableSchema:
    """The schema of a new table, once its columns and key are checked."""
    doing = "creating a table"
    check_names(schema.names, "the rows of the new table")
    taken = [name for name in schema.names if name in (*RESERVED, DELETED)]
    if taken:
        raise SchemaError(
            f"column {taken[0]!r} has a name that the store uses itself",
            doing=doing,
            hint=f"Rename it; {', '.join((*RESERVED, DELETED))} are reserved",
        )
    for name in not_null:
        if name not in schema.names:
            raise no_column(name, schema.names)
        if pt.is_null(schema.field(name).type):
            raise SchemaError(
                f"column {name!r} must not be null and holds nulls alone", doing=doing, hint="Give it a type and values"
            )
    if key:
        check_key(schema, key)
    columns = tuple(
        Column(
            number,
            f.name,
            relation_type(f.type),
            nullable=f.nullable and f.name not in key and f.name not in not_null,
        )
        for number, f in enumerate(schema, 1)
    )
    check_key_types(pa.schema([pa.field(column.name, column.type) for column in columns]), key)
    return TableSchema(columns, tuple(key), 0, len(columns) + 1)


def renamed(schema: TableSchema, old: str, new: str) -> TableSchema:
    """The schema with one column under another name."""
    schema.column(old)
    _check_new_name(schema, new, f"renaming column {old!r}")
    columns = tuple(replace(c, name=new) if c.name == old else c for c in schema.columns)
    key = tuple(new if name == old else name for name in schema.key)
    return TableSchema(columns, key, schema.version + 1, schema.next_id)


def with_column(schema: TableSchema, name: str, kind: pa.DataType, default: pa.Array, *, nullable: bool) -> TableSchema:
    """The schema with one column more, at the end. `default` holds one value."""
    _check_new_name(schema, name, f"adding column {name!r}")
    added = Column(schema.next_id, name, relation_type(kind), nullable, default)
    return TableSchema((*schema.columns, added), schema.key, schema.version + 1, schema.next_id + 1)


def widened(schema: TableSchema, name: str, kind: pa.DataType) -> TableSchema:
    """The schema with one column of a type that holds every value of its present one."""
    column = schema.column(name)
    doing = f"widening column {name!r} of {column.type} to {kind}"
    if not holds(kind, column.type):
        raise SchemaError(
            f"{kind} does not hold every value of {column.type}",
            doing=doing,
            hint="Integers widen to more bits, to decimals or to floats of twice their bits, floats to more bits, "
            "decimals to more digits, string and binary to large ones, times of day from s to ms or from us to ns",
        )
    if name in schema.key and not (pt.is_signed_integer(column.type) and pt.is_signed_integer(kind)):
        raise SchemaError(
            "pages are ordered by this column", doing=doing, hint="Of a key only signed integers widen, to more bits"
        )
    default = None if column.default is None else column.default.cast(kind)
    columns = tuple(replace(c, type=kind, default=default) if c.name == name else c for c in schema.columns)
    return TableSchema(columns, schema.key, schema.version + 1, schema.next_id)


def no_column(name: str, names: Sequence[str]) -> SchemaError:
    """The error that says which columns there are."""
    return SchemaError(
        f"there is no column {name!r}",
        doing="looking for a column",
        hint=f"{did_you_mean(name, names)} The columns are {', '.join(names)}".strip(),
    )


def _check_new_name(schema: TableSchema, name: str, doing: str) -> None:
    refuse_broken_column(name, doing)
    refuse_own_columns([name], doing)
    if name in schema.names or name in (*RESERVED, DELETED) or not name:
        why = f"there is a column {name!r} already" if name in schema.names else f"{name!r} is no name for a column"
        raise SchemaError(why, doing=doing, hint="Choose another name")


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether one type holds every value of another."""
    if pt.is_null(narrow):
        return True
    if pt.is_integer(narrow) and pt.is_integer(wide):
        if pt.is_signed_integer(narrow) == pt.is_signed_integer(wide):
            return bool(wide.bit_width >= narrow.bit_width)
        return bool(pt.is_signed_integer(wide) and wide.bit_width > narrow.bit_width)
    if pt.is_floating(wide):
        fits = pt.is_floating(narrow) or (pt.is_integer(narrow) and wide.bit_width >= 2 * narrow.bit_width)
        return bool(fits and wide.bit_width >= narrow.bit_width)
    if pt.is_decimal(wide) and (pt.is_decimal(narrow) or pt.is_integer(narrow)):
        digits = {8: 3, 16: 5, 32: 10, 64: 20}
        before = digits[narrow.bit_width] if pt.is_integer(narrow) else narrow.precision - narrow.scale
        scale = 0 if pt.is_integer(narrow) else narrow.scale
        return bool(wide.scale >= scale and wide.precision - wide.scale >= before)
    widenings = {
        pa.string(): (pa.large_string(),),
        pa.binary(): (pa.large_binary(),),
        pa.time32("s"): (pa.time32("ms"),),
        pa.time64("us"): (pa.time64("ns"),),
    }
    return narrow == wide or wide in widenings.get(narrow, ())


@lru_cache(maxsize=256)
def _decoded(data: bytes) -> TableSchema:
    body = json.loads(data)
    schema = schema_from_text(body["schema"])
    defaults = {
        int(number): table_from_text(text).column(0).combine_chunks() for number, text in body["defaults"].items()
    }
    columns = tuple(
        Column(number, f.name, f.type, f.nullable, defaults.get(number))
        for number, f in zip(body["ids"], schema, strict=True)
    )
    return TableSchema(columns, tuple(body["key"]), body["version"], body["next_id"])


def _encoded(table_schema: TableSchema) -> bytes:
    defaults = {c.id: table_to_text(pa.table({"v": c.default})) for c in table_schema.columns if c.default is not None}
    body = {
        "schema": schema_to_text(table_schema.arrow_schema),
        "ids": [c.id for c in table_schema.columns],
        "key": list(table_schema.key),
        "version": table_schema.version,
        "next_id": table_schema.next_id,
        "defaults": defaults,
    }
    return json.dumps(body, separators=(",", ":")).encode()


VIEWS, COPIES, PREFIX = "_views", "_view_copies", "_view."
SEGMENTS, STORED = f"{PREFIX}segments", f"{PREFIX}stored"
DIFFERENCE = f"{PREFIX}difference."

WHAT_IFS = "_what_ifs"
NAMED = {WHAT_IFS: "what-if", VIEWS: "view"}
"""Tables that list what is named like a table by its `name`, which is their key; and what they list."""


def is_of_views(name: str) -> bool:
    """Whether a table or a snapshot belongs to views and their copies."""
    return name in (VIEWS, COPIES) or name.startswith(PREFIX)
