"""What a copy holds, and how its rows are told apart: fixed when it is made, and recorded in it.

Three forms, after what its messages name:
- **keyed**: rows have a key, and messages name keys;
- **counted**: rows have none; equal rows are held once, with their number, under the signature of the row;
- **ranges**: rows stand at addresses of a base table, and messages empty ranges of addresses. The address is one of the
  columns (`key` names it) or a column of ours.

Where a column of ours is needed, users read a view without it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import pyarrow as pa

from strandline.changes import COUNTED, KEYED, OURS, check_key, check_schema
from strandline.errors import InputError, KeysError, SchemaError
from strandline.storage import JsonRecord, cached_property
from strandline.tables import COUNT as OUR_COUNT
from strandline.tables import SIGNATURE as OUR_SIGNATURE
from strandline.tables import signed_rows
from strandline.values import plain_schema

RANGES = "ranges"
FORMS = (KEYED, COUNTED, RANGES)
PREFIX = OURS
STATES = f"{PREFIX}replicas"
"""The table of a target in which the states of its copies stand."""
ADDRESS, SIGNATURE, COUNT = f"{PREFIX}address", OUR_SIGNATURE, OUR_COUNT
ABOVE, UPTO = "above", "upto"
RANGE_SCHEMA = pa.schema([(ABOVE, pa.int64()), (UPTO, pa.int64())])
"""A range to empty: addresses greater than `above` and at most `upto`; no `upto` means all that are greater."""


@dataclass(frozen=True)
class CopyDefinition(JsonRecord):
    """The columns of a copy, its form, and its source: the one stream of messages that it takes."""

    schema: pa.Schema
    form: str
    key: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", plain_schema(self.schema))
        check_schema(self.schema)
        if self.form not in FORMS:
            raise InputError(f"{self.form!r} is no form of a copy", hint=f"The forms are {', '.join(FORMS)}")
        if self.form == KEYED or self.key:
            check_key(self.schema, self.key)
        taken = [name for name in self.schema.names if name.lower().startswith(PREFIX)]
        if taken:
            raise SchemaError(f"column {taken[0]!r} begins as ours do", doing="defining a copy", hint="Rename it")
        lower = [name.lower() for name in self.schema.names]
        again = [name for name in self.schema.names if lower.count(name.lower()) > 1]
        if again:
            raise SchemaError(f"columns {again} differ only in case", doing="defining a copy", hint="Rename one")

    @property
    def ours(self) -> pa.Schema:
        """Our own columns, if any."""
        if self.form == COUNTED:
            return pa.schema([(SIGNATURE, pa.string()), (COUNT, pa.int64())])
        return pa.schema([(ADDRESS, pa.int64())] if self.form == RANGES and not self.key else [])

    @property
    def stored(self) -> pa.Schema:
        """Our columns, then the user's."""
        return pa.schema([*self.ours, *self.schema])

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell stored rows apart."""
        return (SIGNATURE,) if self.form == COUNTED else self.key or (ADDRESS,)

    @property
    def gone_schema(self) -> pa.Schema:
        """What a message says of rows that go."""
        if self.form == RANGES:
            return RANGE_SCHEMA
        return self.rows_schema if self.form == COUNTED else pa.schema([self.schema.field(name) for name in self.key])

    @property
    def rows_schema(self) -> pa.Schema:
        """What a message says of rows that come."""
        extra = [(COUNT, pa.int64())] if self.form == COUNTED else list(self.ours)
        return pa.schema([*extra, *self.schema])

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all of this, carried by every message."""
        text = json.dumps([self.form, list(self.key), self.source, self.schema.to_string()], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def signed(definition: CopyDefinition, rows: pa.Table) -> pa.Table:
    """Counted rows with the signature that they are stored under: equal rows once, their counts added up."""
    return signed_rows(definition.schema, rows)


def check_no_null_keys(definition: CopyDefinition, table: pa.Table) -> None:
    """A copy's key has no nulls: databases would take two such rows for different ones."""
    for name in definition.identity:
        if name in table.column_names and table.column(name).null_count:
            raise KeysError(
                f"key column {name!r} holds nulls", doing="sending rows to a copy", hint="Choose a key without nulls"
            )
