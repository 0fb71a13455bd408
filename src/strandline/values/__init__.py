"""What a value is: types and where they meet, equality, encodings, text, SQL expressions, signatures, matching."""

from strandline.values.encoding import no_rows, plain, plain_schema, plain_type, restore, restored
from strandline.values.equality import Column, Flags, comparable, unequal
from strandline.values.expressions import Condition, Expression, parse_condition, parse_expression, readable
from strandline.values.matching import BLOCK_ROWS, Matching, Numbers, key_numbers, match, match_numbers
from strandline.values.signatures import (
    DEFAULT_SEED,
    MAXIMUM_BITS,
    MINIMUM_BITS,
    Scheme,
    bits,
    byte_ranges,
    column_row_signatures,
    fixed_width,
    is_kept,
    is_list,
    load_compiled,
    plain_layout,
    row_signatures,
    scheme_of,
    second_seed,
    signature,
    validity,
)
from strandline.values.spark_types import spark_schema, spark_table
from strandline.values.sql_quoting import quoted, quoted_text
from strandline.values.text import TextGuess, convert_text, guess_type
from strandline.values.type_unification import Incomparable, common_type

__all__ = [
    "BLOCK_ROWS",
    "DEFAULT_SEED",
    "MAXIMUM_BITS",
    "MINIMUM_BITS",
    "Column",
    "Condition",
    "Expression",
    "Flags",
    "Incomparable",
    "Matching",
    "Numbers",
    "Scheme",
    "TextGuess",
    "bits",
    "byte_ranges",
    "column_row_signatures",
    "common_type",
    "comparable",
    "convert_text",
    "fixed_width",
    "guess_type",
    "is_kept",
    "is_list",
    "key_numbers",
    "load_compiled",
    "match",
    "match_numbers",
    "no_rows",
    "parse_condition",
    "parse_expression",
    "plain",
    "plain_layout",
    "plain_schema",
    "plain_type",
    "quoted",
    "quoted_text",
    "readable",
    "restore",
    "restored",
    "row_signatures",
    "scheme_of",
    "second_seed",
    "signature",
    "spark_schema",
    "spark_table",
    "unequal",
    "validity",
]
