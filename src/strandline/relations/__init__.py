"""What can be read: relations, their parts and scans."""

from strandline.relations.relation import Bounds, Part, Relation
from strandline.relations.scan import Scan

__all__ = ["Bounds", "Part", "Relation", "Scan"]
