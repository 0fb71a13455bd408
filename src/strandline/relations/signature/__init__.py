"""Row signatures (sl2): their computation, their description, checksums of relations."""

from strandline.relations.signature.row_signatures import (
    at_recorded_scale,
    column_row_signatures,
    relation_checksum,
    row_signatures,
)
from strandline.relations.signature.scheme import DEFAULT_SEED, Scheme, kind_of, scheme_of
from strandline.relations.signature.sl2 import column_signatures, second_seed, signature

__all__ = [
    "DEFAULT_SEED",
    "Scheme",
    "at_recorded_scale",
    "column_row_signatures",
    "column_signatures",
    "kind_of",
    "relation_checksum",
    "row_signatures",
    "scheme_of",
    "second_seed",
    "signature",
]
