"""Fix-up and refresh in one transaction of the base: the recipe around the statements."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.detect.annotated.catalog import BaseRecord, Catalog, CopyRecord
from strandline.detect.annotated.names import ADDRESS, MET, PAPER, SENT, fields
from strandline.detect.annotated.runs import met, runs, runs_by_lookup, sent_by_runs
from strandline.detect.annotated.statements import CHANGED, LAST_QUAL, TRUE, A, Asked, Statements
from strandline.detect.annotated.tables import BaseTable, Column
from strandline.errors import KeysError, NotFound, StateError
from strandline.replicas.databases import quoted
from strandline.replicas.definition import ABOVE, UPTO
from strandline.replicas.message import Position

LOWEST = -(2**63)
FEW = 0.05
"""Up to this part of the base changed, look-ups beat a window over everything."""
LOOKED_UP = 0.2
"""Up to this part of the base read in steps through the address's index, look-ups beat a scan."""
_SENT_SCHEMA = pa.schema([("address", pa.int64()), ("previous", pa.int64()), ("valued", pa.bool_())])


@dataclass(frozen=True)
class Site:
    """A base as an open connection sees it."""

    table: BaseTable
    catalog: Catalog

    @property
    def name(self) -> str:
        return self.table.address.table

    def record(self, *, lock: bool = False) -> BaseRecord:
        """The base's record, once its annotations are seen to be whole."""
        found = self.catalog.base(self.name, lock=lock)
        doing = f"reading the annotations of {self.table.address.shown}"
        if found is None:
            raise NotFound(f"{self.name!r} is not annotated", doing=doing, hint="Make it a base with sl.base first")
        wanted = {*fields(found.algorithm), *([ADDRESS] if found.own_address else [])}
        missing = sorted(wanted - self.table.present)
        if missing:
            raise StateError(
                f"the annotation column {missing[0]!r} was dropped",
                doing=doing,
                hint="Open the base again with sl.base: it adds the column, and each copy's next refresh is full",
            )
        if not self.table.has_trigger():
            raise StateError(
                f"the trigger {self.table.trigger!r} is gone or disabled, so updates may have passed unseen",
                doing=doing,
                hint="Open the base again with sl.base: it makes the trigger, and each copy's next refresh is full",
            )
        return found

    def restrictions(self, base: str) -> dict[int, str]:
        """The condition of every copy of the base that has a bit, by that."""
        return {copy.bit: copy.qualifies for copy in self.catalog.copies(base) if copy.bit is not None}


@dataclass(frozen=True)
class Sending:
    """What a refresh has to send: one row for each message, and the rows that go with them, with their addresses."""

    position: Position
    messages: pa.Table
    rows: pa.Table

    @property
    def ranges(self) -> pa.Table:
        """The ranges to empty. A message without a value spares its own address; the last one has no end."""
        address, valued = self.messages.column("address"), self.messages.column("valued")
        upto = pa.compute.if_else(valued, address, pa.compute.subtract(address, 1))
        return pa.table({ABOVE: self.messages.column("previous"), UPTO: upto})


def fix_up(
    site: Site, refreshing: int | None = None, *, trusted: bool = True, qualifies: str = TRUE
) -> tuple[BaseRecord, Statements]:
    """Figure 7 at the next tick of the counter, inside the caller's transaction; `TOUCHED` is left for `sent`.

    `refreshing` is the bit of the copy that is refreshed; not `trusted`, it may hold any entry, whatever its bit says.
    `qualifies`, its condition, is evaluated for the touched entries on the way.
    """
    database = site.table.database
    bit = refreshing if trusted else None
    site.table.lock()
    record = site.record(lock=True)
    record = replace(record, time=record.time + 1)
    statements = _statements(site, record)
    for sql in statements.drop():
        database.execute(sql)
    record = _addressed(site, record, statements)
    survey = statements.survey()
    if survey is not None:
        database.execute(survey)
    rows, inserted, changed, least, greatest = database.execute(statements.counts())[0]
    if least is not None and least <= record.start:
        if least == LOWEST:
            raise KeysError(f"the address {LOWEST} can't be used", doing="fixing up a base", hint="Give it another key")
        record = replace(record, start=LOWEST)
        statements = replace(statements, start=LOWEST)
    survived = rows - inserted == record.rows
    gone_at_end = record.rows > 0 and not database.execute(statements.has_last(record.last))
    if (changed or 0) <= FEW * rows and record.start == statements.start and record.rows:
        deletions = not survived or _restarted(site, record)
        for sql in statements.by_lookup(bit, qualifies, deletions=deletions).values():
            database.execute(sql)
    else:
        database.execute(statements.by_scan(bit, qualifies))
    database.execute(statements.fix_up(site.restrictions(record.table), refreshing))
    record = replace(record, rows=rows, last=record.start if greatest is None else greatest)
    if gone_at_end:
        record = replace(record, tail_gap=record.time)
    site.catalog.put_base(record)
    return record, statements


def _restarted(site: Site, record: BaseRecord) -> bool:
    """Whether the start moved since the last fix-up: the first entry's chain is broken then, though none is gone."""
    before = site.catalog.base(record.table)
    return before is None or before.start != record.start


def _statements(site: Site, record: BaseRecord) -> Statements:
    dialect = site.table.database.dialect
    return Statements(dialect, site.table.sql, record.address, record.algorithm, record.start, record.time)


def _addressed(site: Site, record: BaseRecord, statements: Statements) -> BaseRecord:
    if not record.own_address:
        return record
    site.table.database.execute(statements.give_addresses(record.next_address))
    greatest = site.table.database.execute(f"SELECT max({quoted(ADDRESS)}) FROM {site.table.sql}")[0][0]
    return replace(record, next_address=max(record.next_address, (greatest or 0) + 1))


def differential(site: Site, copy: CopyRecord, snap_time: int, *, trusted: bool = True) -> Sending:
    """Fix-up and refresh as one transaction: the base is left fixed up, the messages are in memory.

    Fix-up writes the copy's bits as they will be once it takes the messages. If the last ones never reached it, they
    are not `trusted`: entries are then taken for held, as in the paper, until a refresh has arrived again.
    """
    database = site.table.database
    with database.transaction():
        record, statements = fix_up(site, copy.bit, trusted=trusted, qualifies=copy.qualifies)
        asked = Asked(copy.qualifies, snap_time, copy.bit if trusted else None, record.tail_gap)
        _find_messages(site, statements, asked, copy.held / max(record.rows, 1))
        messages = database.read(
            f"SELECT {A}, {LAST_QUAL}, {CHANGED} FROM {SENT} ORDER BY {A} NULLS LAST", _SENT_SCHEMA
        )
        joined = f"{site.table.sql} JOIN {SENT} ON {quoted(record.address)} = {A} WHERE {CHANGED} ORDER BY {A}"
        rows = read_rows(site, record, copy.columns, joined)
        for sql in statements.drop():
            database.execute(sql)
        position = offer(site, copy, record)
    return Sending(position, messages, rows)


def _find_messages(site: Site, statements: Statements, asked: Asked, qualifying: float) -> None:
    """Leaves the messages in `SENT`. `qualifying` is about which part of the base does."""
    database = site.table.database
    if statements.dialect != "postgres" or statements.algorithm == PAPER:
        database.execute(statements.sent(asked))
        return
    database.execute(met(statements, asked))
    changed = database.execute(f"SELECT count(*) FROM {MET}")[0][0]
    steps = 2 * changed / max(qualifying, 1e-3)  # to the least and greatest qualified entry of each run
    few = steps <= LOOKED_UP * site.record().rows
    database.execute(runs_by_lookup(statements, asked) if few else runs(statements, asked))
    database.execute(sent_by_runs(statements, asked))


def offer(site: Site, copy: CopyRecord, record: BaseRecord, *, anchored: bool = True) -> Position:
    """Records, with the fix-up, the position that the copy will have once it takes what is sent."""
    position = Position(record.time, secrets.token_hex(8), anchored)
    site.catalog.put_copy(replace(copy, offered=position))
    return position


def read_rows(site: Site, record: BaseRecord, columns: Sequence[str], rest: str) -> pa.Table:
    """Addresses and the chosen columns, of what `rest` (FROM on) says."""
    batches = list(row_batches(site, record.address, columns, rest))
    return pa.Table.from_batches(batches, schema=rows_schema(site, columns))


def row_batches(site: Site, address: str, columns: Sequence[str], rest: str) -> Iterator[pa.RecordBatch]:
    """The same, a batch at a time; `ADDRESS` comes first."""
    chosen = chosen_columns(site, columns)
    readings = ", ".join(column.reading.format(quoted(column.name)) for column in chosen)
    sql = f"SELECT {quoted(address)}, {readings} FROM {rest}"
    stored = pa.schema([(ADDRESS, pa.int64()), *((column.name, column.stored) for column in chosen)])
    wanted = rows_schema(site, columns)
    for batch in site.table.database.batches(sql, stored):
        yield batch.cast(wanted) if batch.schema != wanted else batch


def rows_schema(site: Site, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(ADDRESS, pa.int64()), *((column.name, column.type) for column in chosen_columns(site, columns))])


def chosen_columns(site: Site, columns: Sequence[str]) -> list[Column]:
    known: Mapping[str, Column] = {column.name: column for column in site.table.columns}
    missing = [name for name in columns if name not in known]
    if missing:
        raise StateError(
            f"column {missing[0]!r} is no longer in the base",
            doing=f"reading {site.table.address.shown}",
            hint="Drop the copy and replicate again with the columns that there are",
        )
    return [known[name] for name in columns]
