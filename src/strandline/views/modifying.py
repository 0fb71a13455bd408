"""Range modifications at a commit: an update by expression gets a segment of its own, the statement beside its rows.

The paper's last section: the current segment is closed, the modification entry attached, and a new segment started. The
rows are kept all the same, for copies of kinds at which the statement would mean something else, and for those that
come late: then the segment is one of rows like any other.

A restricted copy is one of a view of its own, so whether it can be sent the statement, and which, is decided for it by
itself: an update may leave the view's rows in place and move rows into the restriction.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.errors import StrandlineError
from strandline.pages import Transaction
from strandline.pages.state_edit import StateEdit
from strandline.replicas.databases import parse_address
from strandline.tables import ROW
from strandline.tables.changed_rows import net_rows, rows_of_pairs
from strandline.tables.delta import Statement
from strandline.views.catalogue import CopyRecord, copy_records
from strandline.views.definition import Definition
from strandline.views.range_modification import Images, decide, range_modification
from strandline.views.same_meaning import KINDS
from strandline.views.segments import Statements
from strandline.views.site import Site
from strandline.views.subscription import subscription

WORTH = 8
"""Fewer changed rows of the view are not worth a statement: a segment of its own costs two more entries."""
"""Kinds of copies that a database keeps, and that can run a statement."""


def statements(edit: StateEdit, site: Site, definition: Definition, transactions: Sequence[Transaction]) -> Statements:
    """The statements that say what this batch did to the view's copies, by kind; none if rows must be sent."""
    said = transactions[0].statement if len(transactions) == 1 else None
    if not isinstance(said, Statement) or not definition.key or said.table not in definition.relations:
        return {}
    copies = [one for one in copy_records(site.view, site.cache).values() if one.view == definition.name]
    readers = {reader(one): one for one in copies if parse_address(one.target).kind in KINDS}
    schemas = {relation: site.shape(relation).schema for relation in definition.relations}
    found = {}
    try:
        modification = range_modification(said.table, schemas[said.table], said.set, said.where, said.params)
        images = _images(edit, site, said.table)
        for name, one in sorted(readers.items()):
            held = subscription(definition, one.where, one.columns).definition
            decision = decide(held, schemas, modification, parse_address(one.target).kind, images)
            if decision.fits and decision.updates:
                found[name] = [{"set": [list(pair) for pair in u.set], "where": u.where} for u in decision.updates]
    except StrandlineError:
        # What can't be said as a statement is said as rows.
        return {}
    return found


def reader(copy: CopyRecord) -> str:
    """For whom a statement is: all unrestricted copies of a kind, or one restricted copy."""
    kind = parse_address(copy.target).kind
    return kind if copy.where is None and copy.columns is None else f"{kind} {copy.id}"


def _images(edit: StateEdit, site: Site, table: str) -> Images:
    entry = site.view.find_domain(table)
    assert entry is not None
    record = site.record(table)
    one = edit.domain(entry.domain)
    old, new = rows_of_pairs(site.cache, one.changed(), record, (site.view.read, one.read))
    before, after = net_rows(old, new, record)
    return Images(before.drop_columns([ROW]), after.drop_columns([ROW]))
