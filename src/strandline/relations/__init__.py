"""What can be read: relations, their parts and scans."""

from strandline.relations.database_relation import (
    DatabaseRelation,
    database_address,
    is_database_url,
    relation_over,
    share_state,
)
from strandline.relations.databases import (
    CANONICAL,
    FOLDERS,
    HOLDERS,
    Address,
    Database,
    Held,
    Row,
    TableColumn,
    connect,
    fill_variables,
    held_columns,
    in_duckdb,
    kind_of,
    no_table,
    own_batch,
    parse_address,
    same_place,
    stored_table,
    table_column,
    typed_batch,
    with_names,
    written_as,
)
from strandline.relations.exchange import (
    Exchange,
    ExchangeSide,
    Key,
    bucket_scans,
    buckets_of,
    can_be_ordered,
    exchange_sides,
    gathered,
    groups_of,
    in_hash_buckets,
    in_order_of,
    sample_bounds,
    write_buckets,
)
from strandline.relations.formats import (
    SpooledRelation,
    catch_stream,
    find_objects,
    flowing_frame,
    glob_root,
    hidden,
    iceberg_catalog,
    is_spark_table,
    is_stream,
    leads_back,
    metadata_file,
    missing,
    objects_at,
    parquet_file,
    shown_stream,
    split_sheet,
    spool_batches,
    stream_identity,
    written_out,
)
from strandline.relations.inputs import (
    open_relation,
    retype,
    takes_type,
    typed_where_open,
    untyped_columns,
    with_empty,
)
from strandline.relations.key_ranges import KeyRange, clustering_of, cut_ranges, inside
from strandline.relations.read_options import ReadOptions, arrow_type
from strandline.relations.reader import read_relation, read_scan, read_table, register_reader, relation_batches
from strandline.relations.relation import (
    Bounds,
    Relation,
    Scan,
    ScannedRelation,
    Split,
    merged,
    schema_from_text,
    schema_to_text,
    table_from_text,
    table_to_text,
)
from strandline.relations.schema import check_names, conform, convert, names_of, relation_schema, relation_type
from strandline.relations.shuffle import BucketScans, run_exchanged
from strandline.relations.statistics import moment
from strandline.relations.unequal_ranges import EqualRanges, UnequalRows, unequal_rows
