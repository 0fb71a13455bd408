"""One file for each kind of input: how it is found, how it is cut into splits, how a split is read."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.relations.formats.arrow import open_arrow, read_arrow
    from strandline.relations.formats.csv import open_csv
    from strandline.relations.formats.delta import delta_relation, is_delta_table, open_delta
    from strandline.relations.formats.excel import open_excel
    from strandline.relations.formats.files import (
        DataFile,
        check_unchanged,
        find_files,
        format_of_file,
        format_of_folder,
        local_path,
        missing,
        one_format,
        said_format,
        split_sheet,
        with_constants,
    )
    from strandline.relations.formats.footers import parquet_file
    from strandline.relations.formats.iceberg import (
        iceberg_catalog,
        iceberg_relation,
        is_iceberg_table,
        metadata_file,
        open_iceberg,
    )
    from strandline.relations.formats.json import open_json, read_json
    from strandline.relations.formats.objects import find_objects
    from strandline.relations.formats.parquet import ParquetRelation, open_parquet, read_parquet
    from strandline.relations.formats.spark import (
        flowing_frame,
        frame_columns,
        is_spark_frame,
        is_spark_table,
        open_spark_frame,
        open_spark_table,
        written_out,
    )
    from strandline.relations.formats.streams import (
        catch_stream,
        ends_a_line,
        is_stream,
        naming_stream,
        shown_stream,
        stream_identity,
    )

_HOMES = {
    "DataFile": "strandline.relations.formats.files",
    "ParquetRelation": "strandline.relations.formats.parquet",
    "flowing_frame": "strandline.relations.formats.spark",
    "find_objects": "strandline.relations.formats.objects",
    "check_unchanged": "strandline.relations.formats.files",
    "find_files": "strandline.relations.formats.files",
    "frame_columns": "strandline.relations.formats.spark",
    "format_of_file": "strandline.relations.formats.files",
    "format_of_folder": "strandline.relations.formats.files",
    "is_spark_frame": "strandline.relations.formats.spark",
    "is_spark_table": "strandline.relations.formats.spark",
    "open_spark_table": "strandline.relations.formats.spark",
    "local_path": "strandline.relations.formats.files",
    "metadata_file": "strandline.relations.formats.iceberg",
    "missing": "strandline.relations.formats.files",
    "one_format": "strandline.relations.formats.files",
    "open_arrow": "strandline.relations.formats.arrow",
    "open_csv": "strandline.relations.formats.csv",
    "open_excel": "strandline.relations.formats.excel",
    "open_delta": "strandline.relations.formats.delta",
    "open_iceberg": "strandline.relations.formats.iceberg",
    "open_json": "strandline.relations.formats.json",
    "open_parquet": "strandline.relations.formats.parquet",
    "open_spark_frame": "strandline.relations.formats.spark",
    "parquet_file": "strandline.relations.formats.footers",
    "read_arrow": "strandline.relations.formats.arrow",
    "read_json": "strandline.relations.formats.json",
    "read_parquet": "strandline.relations.formats.parquet",
    "catch_stream": "strandline.relations.formats.streams",
    "ends_a_line": "strandline.relations.formats.streams",
    "is_stream": "strandline.relations.formats.streams",
    "naming_stream": "strandline.relations.formats.streams",
    "delta_relation": "strandline.relations.formats.delta",
    "is_delta_table": "strandline.relations.formats.delta",
    "iceberg_catalog": "strandline.relations.formats.iceberg",
    "iceberg_relation": "strandline.relations.formats.iceberg",
    "is_iceberg_table": "strandline.relations.formats.iceberg",
    "said_format": "strandline.relations.formats.files",
    "split_sheet": "strandline.relations.formats.files",
    "shown_stream": "strandline.relations.formats.streams",
    "stream_identity": "strandline.relations.formats.streams",
    "with_constants": "strandline.relations.formats.files",
    "written_out": "strandline.relations.formats.spark",
}

__all__ = [
    "DataFile",
    "ParquetRelation",
    "catch_stream",
    "check_unchanged",
    "delta_relation",
    "ends_a_line",
    "find_files",
    "find_objects",
    "flowing_frame",
    "format_of_file",
    "format_of_folder",
    "frame_columns",
    "iceberg_catalog",
    "iceberg_relation",
    "is_delta_table",
    "is_iceberg_table",
    "is_spark_frame",
    "is_spark_table",
    "is_stream",
    "local_path",
    "metadata_file",
    "missing",
    "naming_stream",
    "one_format",
    "open_arrow",
    "open_csv",
    "open_delta",
    "open_excel",
    "open_iceberg",
    "open_json",
    "open_parquet",
    "open_spark_frame",
    "open_spark_table",
    "parquet_file",
    "read_arrow",
    "read_json",
    "read_parquet",
    "said_format",
    "shown_stream",
    "split_sheet",
    "stream_identity",
    "with_constants",
    "written_out",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'strandline.relations.formats' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
