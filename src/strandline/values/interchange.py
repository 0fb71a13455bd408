"""Between Arrow and what Python has: rows as pandas and Polars frames and as streams, Python's values as arrays.

Whatever gives an Arrow table is also a frame of either kind, and a stream for everything that reads Arrow. pandas and
Polars are imported when they are asked for, and are no extras of ours. Python's values go through `array_of`, because
`pa.array` cuts off fractions, times of day and parts of seconds in silence.
"""

from __future__ import annotations

import datetime as dt
import importlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from strandline.errors import MissingExtra

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class ArrowRows:
    """What has rows: `to_arrow` gives them, and the others take its keywords."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The rows."""

    def to_pandas(self, **how: Any) -> pd.DataFrame:
        """The rows as a pandas DataFrame whose columns keep their Arrow types; takes what `to_arrow` takes."""
        pandas = _package("pandas")
        return self.to_arrow(**how).to_pandas(types_mapper=pandas.ArrowDtype)

    def to_polars(self, **how: Any) -> pl.DataFrame:
        """The rows as a Polars DataFrame; takes what `to_arrow` takes."""
        return _package("polars").from_arrow(self.to_arrow(**how))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for whatever reads Arrow: DuckDB, Polars, pandas, `strandline.diff`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The schema of the rows, which need not be what `schema` means."""
        return self._rows_schema().__arrow_c_schema__()

    def _rows_schema(self) -> pa.Schema:
        return self.to_arrow().schema


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise MissingExtra(
            f"{name} is not installed", doing=f"making a {name} frame", hint=f"Install it with: pip install {name}"
        ) from None


_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """The values in a type; one that the type would cut off is a `pa.ArrowInvalid`, as one is that it can't hold."""
    for value in values:
        if _is_cut(value, type_):
            raise pa.ArrowInvalid(f"{value!r} is more than {type_} can hold")
    return pa.array(values, type_)


def _is_cut(value: Any, type_: pa.DataType) -> bool:
    if value is None:
        return False
    if pt.is_dictionary(type_):
        return _is_cut(value, type_.value_type)
    if pt.is_struct(type_) and isinstance(value, dict):
        return any(_is_cut(value.get(field.name), field.type) for field in type_)
    if pt.is_map(type_):
        entries = value.items() if isinstance(value, dict) else value
        return any(_is_cut(key, type_.key_type) or _is_cut(item, type_.item_type) for key, item in entries)
    if pt.is_nested(type_):
        return isinstance(value, (list, tuple)) and any(_is_cut(each, type_.value_type) for each in value)
    if isinstance(value, (float, Decimal)) and (pt.is_integer(type_) or pt.is_temporal(type_)):
        return math.isfinite(value) and value != int(value)
    if isinstance(value, float) and pt.is_floating(type_):
        return math.isfinite(value) and not math.isfinite(pa.scalar(value, type_).as_py())
    if isinstance(value, dt.datetime) and pt.is_date(type_):
        return value.time() != dt.time()
    if isinstance(value, (dt.datetime, dt.time)) and (pt.is_timestamp(type_) or pt.is_time(type_)):
        return value.microsecond % _MICROSECONDS[type_.unit] != 0
    if isinstance(value, dt.timedelta) and pt.is_duration(type_):
        return value.microseconds % _MICROSECONDS[type_.unit] != 0
    return False
