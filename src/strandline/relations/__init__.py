"""What can be read: relations, their parts and scans."""

from strandline.relations.clustering import Clustering, clustering
from strandline.relations.cut_ranges import cut_ranges
from strandline.relations.exchange import exchange
from strandline.relations.key_range import KeyRange, inside
from strandline.relations.open import open_relation
from strandline.relations.options import ReadOptions, arrow_type
from strandline.relations.read import read_relation, read_scan, read_table, scan_schema
from strandline.relations.relation import Bounds, Part, Relation
from strandline.relations.retyped import retyped
from strandline.relations.scan import Scan, merged
from strandline.relations.scan_sql import scan_sql

__all__ = [
    "Bounds",
    "Clustering",
    "KeyRange",
    "Part",
    "ReadOptions",
    "Relation",
    "Scan",
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
