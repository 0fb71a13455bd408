"""What the control plane stores, and how it is encoded: pointer, master, nodes, page table, directory."""

from strandline.pages.format.directory import DirectoryPages, Leafage, delete, floor, insert, scan
from strandline.pages.format.envelope import Json, checksum, seal, unseal
from strandline.pages.format.master import (
    MASTER,
    RESTORING,
    Master,
    StoredMaster,
    chunk_names,
    encode_master,
    read_master,
    replace_master,
    version_row,
    with_version,
    without_version,
)
from strandline.pages.format.node import (
    Entry,
    Item,
    Node,
    NodeRef,
    PageRef,
    Sums,
    TableEntry,
    decode_entry,
    decode_page_ref,
    decode_ref,
    decode_table_entry,
    encode_item,
    encode_node,
    encode_page_ref,
    encode_ref,
    item_pages,
    page_entry,
    table_entry,
)
from strandline.pages.format.objects import (
    Objects,
    ObjectWriter,
    PendingObjects,
    PreviewWriter,
    node_name,
    page_name,
    version_name,
)
from strandline.pages.format.page_table import (
    FreeList,
    LoadNode,
    Visits,
    differences,
    find,
    items,
    old_side,
    only_in,
    pages_only_in,
    rewrite,
)
from strandline.pages.format.pointer import (
    Chunk,
    ChunkedList,
    Fork,
    ForkBase,
    Freed,
    LoadChunk,
    LogEntry,
    Pointer,
    Reservation,
    SnapshotRecord,
    decode_pointer,
    encode_pointer,
    implicit,
    snapshot_to_json,
)
