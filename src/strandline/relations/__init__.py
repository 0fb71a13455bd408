"""What can be read: relations, their parts and scans."""

from strandline.relations.clustering import Clustering, clustering
from strandline.relations.exchange import exchange
from strandline.relations.key_ranges import KeyRange, cut_ranges, inside
from strandline.relations.open_relation import open_relation
from strandline.relations.read_options import ReadOptions, arrow_type
from strandline.relations.reader import read_relation, read_scan, read_table, scan_schema
from strandline.relations.relation import Bounds, Relation, Split
from strandline.relations.retyped import retyped
from strandline.relations.scan import Scan, merged
from strandline.relations.scan_sql import scan_sql

__all__ = [
    "Bounds",
    "Clustering",
    "KeyRange",
    "ReadOptions",
    "Relation",
    "Scan",
    "Split",
    "arrow_type",
    "clustering",
    "cut_ranges",
    "exchange",
    "inside",
    "merged",
    "open_relation",
    "read_relation",
    "read_scan",
    "read_table",
    "retyped",
    "scan_schema",
    "scan_sql",
]
