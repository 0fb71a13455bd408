"""A copy's table that a hand has altered, dropped or filled with what is no value of its column: found, and made fit to
be compared again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.errors import StorageError
from strandline.replicas.databases import Database, quoted
from strandline.replicas.holding import own_batch
from strandline.replicas.sql_layout import Layout
from strandline.replicas.state import State

PAGE = 4096


def lost(database: Database, layout: Layout, found: Sequence[tuple[str, str]], state: State) -> list[str]:
    """What of the tables that users and we read is gone or altered; `found` is how the database describes the data."""
    told = []
    if state.layout and tuple(found) != state.layout:
        told.append(
            f"the table {layout.data_name!r} was altered" if found else f"the table {layout.data_name!r} is gone"
        )
    if layout.hides and not database.columns(layout.address.table, layout.address.schema):
        told.append(f"the view {layout.address.table!r} is gone")
    return told


def made_anew(database: Database, layout: Layout, *, data: bool) -> None:
    """An empty table (`data`) in the place of an altered one, and the view."""
    if layout.hides:
        database.execute(f"DROP VIEW IF EXISTS {layout.view}")
    if data:
        database.execute(f"DROP TABLE IF EXISTS {layout.data}")
        database.execute(layout.create_table(layout.data))
    if layout.hides:
        database.execute(layout.create_view())


def without_unreadable_rows(database: Database, layout: Layout) -> None:
    """SQLite's columns take any value: rows with one that is none of its column's go."""
    if database.dialect != "sqlite":
        return
    above = -(2**63)
    while page := [
        int(row)
        for (row,) in database.execute(
            f"SELECT rowid FROM {layout.data} WHERE rowid > ? ORDER BY rowid LIMIT {PAGE}", [above]
        )
    ]:
        for row in _unreadable(database, layout, page):
            database.execute(f"DELETE FROM {layout.data} WHERE rowid = ?", [row])
        above = page[-1]


def _unreadable(database: Database, layout: Layout, page: Sequence[int]) -> Iterator[int]:
    """By halves: most pages are read once."""
    if _reads(database, layout, page):
        return
    if len(page) == 1:
        yield page[0]
        return
    middle = len(page) // 2
    yield from _unreadable(database, layout, page[:middle])
    yield from _unreadable(database, layout, page[middle:])


def _reads(database: Database, layout: Layout, page: Sequence[int]) -> bool:
    sql = f"{layout.select()} WHERE {quoted('rowid')} BETWEEN ? AND ?"
    try:
        for batch in database.batches(sql, layout.stored_schema, [page[0], page[-1]]):
            own_batch(batch, layout.definition.stored, layout.held, "reading a copy")
    except StorageError:
        return False
    return True
