"""Rows for the tools that people have: whatever gives an Arrow table is also a pandas and a Polars frame, and a stream
for everything that reads Arrow. pandas and Polars are imported when they are asked for, and are no extras of ours.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
