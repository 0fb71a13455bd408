"""What a value is: types and where they meet, equality, encodings, text, SQL expressions, signatures, matching."""

from strandline.values.arrow_conditions import arrow_condition
from strandline.values.buffers import (
    ArrowColumn,
    Flags,
    Numbers,
    Positions,
    Words,
    bits,
    byte_ranges,
    fixed_width,
    validity,
)
from strandline.values.duckdb_columns import (
    NanosecondColumn,
    check_microseconds,
    compare_exactly,
    durations,
    in_sql_type,
    readable,
    sql_rounds,
)
from strandline.values.duckdb_functions import is_aggregate, unsteady_calls
from strandline.values.encoding import (
    cast_array,
    cast_rows,
    lost_in_parquet,
    no_rows,
    parquet_refusal,
    plain,
    plain_schema,
    plain_type,
    reads_fixed_size_lists,
    repeating_columns,
    with_inner_types,
)
from strandline.values.equality import comparable, key_order, list_offsets, unequal
from strandline.values.expressions import Condition, Expression, parse_condition, parse_expression, renamed_columns
from strandline.values.hash_runs import Hashes, HashWriter, key_hashes, keys_met_again, read_hashes
from strandline.values.interchange import ArrowRows, array_of
from strandline.values.matching import (
    BLOCK_ROWS,
    Matching,
    first_occurrences,
    is_sought,
    key_numbers,
    match,
    match_numbers,
    meets,
    positions_among,
    repeated_rows,
    sought_values,
)
from strandline.values.signatures import (
    DEFAULT_SEED,
    MAXIMUM_BITS,
    MINIMUM_BITS,
    SIGNATURE_ALGORITHM,
    Scheme,
    bits_for,
    column_row_signatures,
    error_of_one_comparison,
    expected_runs_to_first_miss,
    is_kept,
    kind_of,
    load_compiled,
    miss_probability,
    plain_layout,
    row_signatures,
    scheme_of,
    second_seed,
    signature,
)
from strandline.values.spark_types import arrow_schema_of, check_variants, spark_schema, spark_struct, spark_table
from strandline.values.sql import (
    conjuncts,
    free_name,
    load_sqlglot,
    parse_query,
    parse_sql,
    parse_written,
    quoted,
    quoted_text,
    translated,
)
from strandline.values.text import TextGuess, convert_text, guess_type, seconds_of
from strandline.values.type_unification import (
    Incomparable,
    common_type,
    is_byte_string,
    is_bytes,
    is_list,
    is_number,
    is_plain_bytes,
    is_plain_text,
    is_text,
    is_variable_width,
)
