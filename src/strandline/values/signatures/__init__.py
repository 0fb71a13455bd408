"""Row signatures (sl3): their computation and their description."""

from strandline.values.signatures.compiled_cache import is_kept, load_compiled
from strandline.values.signatures.scheme import (
    DEFAULT_SEED,
    MAXIMUM_BITS,
    MINIMUM_BITS,
    SIGNATURE_ALGORITHM,
    Scheme,
    bits_for,
    error_of_one_comparison,
    expected_runs_to_first_miss,
    kind_of,
    miss_probability,
    scheme_of,
)
from strandline.values.signatures.sl3 import (
    column_row_signatures,
    compiled_pays,
    plain_layout,
    row_signatures,
    second_seed,
    signature,
)
