"""Signatures kept between runs (sections 3.2 and 3.3): states, and differentials against them."""

from strandline.differential.signatures.known_blocks import KnownBlock, MarkedRows, read_marked, with_known_rows
from strandline.differential.signatures.signature_file import (
    FILE,
    NUMBER,
    ROW,
    SignatureSegment,
    SignatureSpec,
    between,
    column_names,
    concat_segments,
    numbers_tell_keys,
    open_segment,
    rename_fields,
    segment_keys,
    segment_numbers,
    sign,
    signature_names,
    sort_segment,
    write_segment,
)
from strandline.differential.signatures.state import (
    SignatureState,
    has_state,
    is_state,
    load_state,
    save_state,
    state_lock,
)
