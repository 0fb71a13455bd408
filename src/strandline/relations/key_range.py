"""A key range: what one piece of two relations owns, and which of its rows it can decide alone."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from strandline.relations.spans import KeyValue


@dataclass(frozen=True)
class KeyRange:
    """A piece of two relations: the parts that it owns on each side, by number, and its safe interval.

    A row whose `prefix` columns hold neither null nor NaN and lie strictly between `after` and `before` (both
    exclusive; None: no limit) has every row of its key, on both sides, inside this piece. All other rows of the piece
    are *leftovers*: their key may occur in another piece. `leftovers` estimates their number.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    prefix: tuple[str, ...]
    after: KeyValue | None = None
    before: KeyValue | None = None
    rows: int = 0
    bytes: int = 0
    leftovers: int = 0

    @property
    def whole(self) -> bool:
        """Whether this is the only piece: every row is then decided in it, null and NaN keys too."""
        return self.after is None and self.before is None

    def to_json(self) -> dict[str, Any]:
        return {
            "old": list(self.old),
            "new": list(self.new),
            "prefix": list(self.prefix),
            "after": _tuple_to_json(self.after),
            "before": _tuple_to_json(self.before),
            "rows": self.rows,
            "bytes": self.bytes,
            "leftovers": self.leftovers,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> KeyRange:
        return KeyRange(
            old=tuple(record["old"]),
            new=tuple(record["new"]),
            prefix=tuple(record["prefix"]),
            after=_tuple_from_json(record["after"]),
            before=_tuple_from_json(record["before"]),
            rows=record["rows"],
            bytes=record["bytes"],
            leftovers=record["leftovers"],
        )


def inside(range_: KeyRange, batch: pa.RecordBatch | pa.Table) -> Any:
    """A boolean array without nulls: which rows of the batch lie in the safe interval."""
    mask = pa.chunked_array([pa.repeat(True, batch.num_rows)])
    if range_.whole:
        return mask
    columns = [batch.column(name) for name in range_.prefix]
    for column in columns:
        mask = pc.and_(mask, pc.is_valid(column))
        if pat.is_floating(column.type):
            mask = pc.and_(mask, pc.invert(pc.is_nan(column)))
    if range_.after is not None:
        mask = pc.and_(mask, _compared(columns, range_.after, pc.greater))
    if range_.before is not None:
        mask = pc.and_(mask, _compared(columns, range_.before, pc.less))
    return pc.fill_null(mask, False)


def _compared(columns: Sequence[Any], limit: KeyValue, compare: Any) -> Any:
    """Lexicographic comparison, from the last column to the first."""
    result: Any = None
    for column, value in reversed(list(zip(columns, limit, strict=True))):
        scalar = _scalar(value, column.type)
        strict = compare(column, scalar)
        result = strict if result is None else pc.or_(strict, pc.and_(pc.equal(column, scalar), result))
    return result


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    # Times and decimals compare across units and scales; the rest takes the column's own type.
    return pa.scalar(value) if isinstance(value, (dt.datetime, decimal.Decimal)) else pa.scalar(value, kind)


def _tuple_to_json(values: KeyValue | None) -> list[Any] | None:
    return None if values is None else [_to_json(value) for value in values]


def _tuple_from_json(values: list[Any] | None) -> KeyValue | None:
    return None if values is None else tuple(_from_json(value) for value in values)


def _to_json(value: Any) -> Any:
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        return ["bytes", base64.b64encode(value).decode("ascii")]
    if isinstance(value, dt.datetime):
        return ["datetime", value.isoformat()]
    if isinstance(value, dt.date):
        return ["date", value.isoformat()]
    return [type(value).__name__.lower(), str(value)]


def _from_json(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, text = value
    readers: dict[str, Any] = {
        "bytes": base64.b64decode,
        "datetime": dt.datetime.fromisoformat,
        "date": dt.date.fromisoformat,
        "float": float,
        "decimal": decimal.Decimal,
    }
    return readers[kind](text)
