"""One file for each kind of input: how it is found, how it is cut into splits, how a split is read."""

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
    glob_root,
    hidden,
    leads_back,
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
from strandline.relations.formats.objects import find_objects, objects_at
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
from strandline.relations.formats.spooled import SpooledRelation, is_in_memory, open_in_memory, spool_batches
from strandline.relations.formats.streams import (
    catch_stream,
    ends_a_line,
    is_stream,
    naming_stream,
    shown_stream,
    stream_identity,
)
