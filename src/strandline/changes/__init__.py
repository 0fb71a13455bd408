"""The change set: its shape, its algebra, its files."""

from strandline.changes.applied import Applied
from strandline.changes.apply import KeyedImages, check_base, check_fit
from strandline.changes.changes import Changes
from strandline.changes.conversion import to_keyed
from strandline.changes.execution import StoredChanges, frame_of, keep_for_frames, small_frame
from strandline.changes.fill import filled_header
from strandline.changes.part_files import (
    PartFile,
    PartWriter,
    check_carried,
    part_scan,
    parts_of,
    read_batches,
    read_parts,
    write_changes,
    write_part,
)
from strandline.changes.shape import (
    BEFORE,
    CHANGE,
    CHANGED,
    COUNT,
    COUNTED,
    DELETE,
    INSERT,
    KEYED,
    KINDS,
    OURS,
    RESERVED,
    UPDATE,
    ChangeSet,
    Counts,
    Header,
    after_table,
    before_table,
    check_columns,
    check_key,
    check_schema,
    counted_header,
    empty,
    finish,
    flagged_names,
    keyed_header,
    kinds,
    show,
    total,
)
from strandline.changes.table_difference import counted_rows, difference, keyed_difference, net_counts, repeated_keys
