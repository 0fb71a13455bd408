"""Shadow paging: the store's control plane. Ylönen et al., "Concurrent Shadow Paging", all sections.

    create_store / open_store → PageStore
        .version("main") → Version
            .begin() → Transaction        locks, row changes, page changes, catalog changes; commit or abort
            .snapshot() → PageSnapshot    temporary: .view, .commit, .close()
            .name_snapshot, .demote, .drop_snapshot, .snapshots, .at(name | commit | time), .log
            .view() / .refresh() → ReadView   the newest state, unprotected
        .fork(name, parent=, of=), .drop_version(name), .versions(), .beat(), .start_heart(), .close()
        .temporary(parent=, of=) → TemporaryVersion: .keep(name), .close()

    ReadView: find_domain(name) → TableEntry; record(domain) → bytes; page_for(domain, key) → Entry;
          pages_between(domain, low, high); entries(domain); entries_since(domain, commit);
          changed_entries(domain, older_view); read(page_ref) → bytes

What the layers above provide, in the order in which `commit_batch` calls it:
- `Validator.conflict(transaction, older, newer)` says whether a transaction may go on although another
  process committed. A changed record of a table that it writes is a conflict without asking.
- `Installer.install(edit, changes)` puts a batch's row changes onto the pages of one domain, through
  `TableEdit`: `page_for, pages_between, entry, read` to look; `write` for a new physical page; `add, put,
  remove` for logical pages, described by a `Draft`; `index, unindex` for the directory (key → page);
  `take_sequence` for row numbers; `moved(old, new)` when rows go to another page (locks follow);
  `try_exclusive(pages)` before joining pages. It may be called again for the same changes.
- `Deriver.derive(edit, transactions)` changes further domains according to what the batch changed.

How a transaction reads: lock first (`lock_row`, `lock_range`, `lock_page`, `lock_table`), then read
`transaction.view()`, then lay `transaction.changes(domain)` over it. Until it ends, everything in the views
it gets stays readable. Read-only work takes a `snapshot()` and no locks. `Version.view()` protects
nothing: a commit may delete its pages while they are read (`SnapshotExpired`).

Bulk loads: `transaction.grant_names(pieces, runs)` gives names for pages that workers write to storage
themselves, each attempt through a `WorkerOutput`; then `add_page` or `put_page` with the `PageRef`s that
came back. What the commit does not name is deleted.

Keys are bytes, compared as bytes: the tables encode key columns so that the order is kept. A page holds the
keys from its separator (inclusive) to the next one (exclusive); give the first page of a table the
separator b"". A domain is a table. Its record is UTF-8 text of the tables' own; its `sequence` counts row
numbers. A process that may idle longer than a minute must `start_heart()`, or others take it for dead.
"""

from strandline.pages.check import Report, check_store
from strandline.pages.context import Installer
from strandline.pages.format import (
    MASTER,
    RESTORING,
    Chunk,
    ChunkedList,
    Entry,
    Fork,
    ForkBase,
    Item,
    Json,
    Leafage,
    LogEntry,
    Master,
    Node,
    NodeRef,
    Objects,
    ObjectWriter,
    PageRef,
    Pointer,
    SnapshotRecord,
    Sums,
    TableEntry,
    checksum,
    decode_entry,
    decode_page_ref,
    decode_table_entry,
    encode_item,
    encode_master,
    encode_node,
    encode_page_ref,
    encode_pointer,
    find,
    implicit,
    items,
    node_name,
    read_master,
    rewrite,
    scan,
    seal,
    snapshot_to_json,
    unseal,
    version_row,
)
from strandline.pages.ids import (
    CATALOG,
    NEVER,
    NO_DOMAIN,
    UNBORN,
    CommitNumber,
    Environment,
    LogicalPage,
    PhysicalPage,
    TableId,
    VersionObject,
    is_own_name,
    refuse_own_name,
)
from strandline.pages.liveness import ProcessIdentity
from strandline.pages.locks import Mode
from strandline.pages.process_registry import PROCESSES, ProcessRegistry, encode_registry, read_registry
from strandline.pages.read_view import PARTIAL, ReadView, State
from strandline.pages.snapshots import PageSnapshot, open_record, parse_at, state_at
from strandline.pages.space import EVERY, Holding, Part, space_held
from strandline.pages.state_edit import Draft, StateEdit, TableEdit
from strandline.pages.store import MAIN, PageStore, create_store, open_store
from strandline.pages.temporary_version import TemporaryVersion
from strandline.pages.transaction import Transaction
from strandline.pages.version import Version
from strandline.pages.worker_output import Grant, WorkerOutput
