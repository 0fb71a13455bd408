"""What can be read: relations, their parts and scans."""

from strandline.relations.databases import (
    CANONICAL,
    HOLDERS,
    Address,
    Database,
    Held,
    Row,
    connect,
    held_columns,
    in_duckdb,
    own_batch,
    parse_address,
    stored_table,
)
from strandline.relations.exchange import (
    Exchange,
    ExchangeSide,
    bucket_scans,
    buckets_of,
    can_be_ordered,
    exchange_by_range,
    exchange_rows,
    groups_of,
    in_order_of,
    sample_bounds,
    sort_order,
    write_buckets,
)
from strandline.relations.formats import flowing_frame, parquet_file, written_out
from strandline.relations.inputs import open_relation, retype
from strandline.relations.key_ranges import KeyRange, clustering_of, cut_ranges, inside
from strandline.relations.read_options import ReadOptions, arrow_type
from strandline.relations.reader import read_relation, read_scan, read_table, register_reader
from strandline.relations.relation import Bounds, Relation, ScannedRelation, Split
from strandline.relations.scan import (
    Scan,
    merged,
    schema_from_text,
    schema_to_text,
    table_from_text,
    table_to_text,
)
from strandline.relations.schema import check_names, conform, convert, relation_type
from strandline.relations.shuffle import BUCKET_SCANS, run_exchanged
from strandline.relations.spooled import SpooledRelation, spool_batches
from strandline.relations.statistics import moment

__all__ = [
    "BUCKET_SCANS",
    "CANONICAL",
    "HOLDERS",
    "Address",
    "Bounds",
    "Database",
    "Exchange",
    "ExchangeSide",
    "Held",
    "KeyRange",
    "ReadOptions",
    "Relation",
    "Row",
    "Scan",
    "ScannedRelation",
    "Split",
    "SpooledRelation",
    "arrow_type",
    "bucket_scans",
    "buckets_of",
    "can_be_ordered",
    "check_names",
    "clustering_of",
    "conform",
    "connect",
    "convert",
    "cut_ranges",
    "exchange_by_range",
    "exchange_rows",
    "flowing_frame",
    "groups_of",
    "held_columns",
    "in_duckdb",
    "in_order_of",
    "inside",
    "merged",
    "moment",
    "open_relation",
    "own_batch",
    "parquet_file",
    "parse_address",
    "read_relation",
    "read_scan",
    "read_table",
    "register_reader",
    "relation_type",
    "retype",
    "run_exchanged",
    "sample_bounds",
    "schema_from_text",
    "schema_to_text",
    "sort_order",
    "spool_batches",
    "stored_table",
    "table_from_text",
    "table_to_text",
    "write_buckets",
    "written_out",
]
