"""New values for columns, as `update` takes them: SQL expressions in `set`, plain values in `values`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.errors import InputError, SchemaError
from strandline.tables import Record
from strandline.tables.expressions import Expression


class Assignment:
    """Checked against a table before any row is read."""

    def __init__(
        self,
        record: Record,
        set: Mapping[str, str] | None,
        values: Mapping[str, Any] | None,
        params: Mapping[str, Any] | None,
    ) -> None:
        names = [*(set or {}), *(values or {})]
        if not names or len({*names}) < len(names):
            raise InputError(
                "no column is given, or one twice", doing="Updating a what-if", hint="Use set={…} or values={…}"
            )
        self._fields = {name: pa.field(name, record.column(name).type) for name in names}
        self._sets = {name: Expression(text, record.schema, params) for name, text in (set or {}).items()}
        self._values = {name: _literal(value, self._fields[name]) for name, value in (values or {}).items()}
        self.columns = {*names}

    @property
    def expressions(self) -> list[Expression]:
        return list(self._sets.values())

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows with their new values."""
        new = rows
        for name, field in self._fields.items():
            if name in self._sets:
                column = self._sets[name].values(rows, field)
            else:
                column = self._values[name].take(pa.array(np.zeros(len(rows), dtype=np.int64)))
            new = new.set_column(new.column_names.index(name), field, column)
        return new


def _literal(value: Any, field: pa.Field) -> pa.Array:
    try:
        return pa.array([value], field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaError(
            f"{value!r} does not fit column {field.name!r} of {field.type}: {error}", doing="Updating a what-if"
        ) from None
