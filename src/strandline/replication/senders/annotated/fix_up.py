"""Fix-up and refresh in one transaction of the base: the recipe around the statements."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from strandline.errors import Conflict, Fenced, KeysError, NotFound, StateError
from strandline.relations import Address, Database, TableColumn, connect, typed_batch
from strandline.replication.definition import ABOVE, UPTO
from strandline.replication.message import Position
from strandline.replication.senders.annotated import program as programs
from strandline.replication.senders.annotated.base_dialects import describe
from strandline.replication.senders.annotated.base_table import ADDRESS, PREVIOUS, BaseTable, fields
from strandline.replication.senders.annotated.catalog import BaseCatalog, BaseCopyRecord, BaseRecord
from strandline.replication.senders.annotated.program import Program
from strandline.replication.senders.annotated.statements import (
    BROKEN,
    DELETED,
    EVERY,
    FRESH,
    MET,
    NONE,
    RUNS,
    SENT,
    TOUCHED,
    UNLIKE,
    FixUpNumbers,
    Statements,
)
from strandline.values import quoted

AGAIN = "Try again"
LOWEST = -(2**63)
FEW = 0.2
"""Up to this part of the base changed, look-ups beat a window over everything."""
LOOKED_UP = 0.2
"""Up to this part of the base read in steps through the address's index, look-ups beat a scan."""
_SENT_SCHEMA = pa.schema([("address", pa.int64()), ("previous", pa.int64()), ("valued", pa.bool_())])


@dataclass(frozen=True)
class BaseSite:
    """A base as an open connection sees it."""

    table: BaseTable
    catalog: BaseCatalog
    _loaded: dict[str, Program] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        return self.table.address.table

    def record(self, *, lock: bool = False) -> BaseRecord:
        """The base's record, once its annotations are seen to be whole."""
        record = self.catalog.base(self.name, lock=lock)
        doing = f"reading the annotations of {self.table.address.shown}"
        if record is None:
            raise NotFound(f"{self.name!r} is not annotated", doing=doing, hint="Make it a base with sl.base first")
        trouble = self.trouble(record)
        if trouble and not self._trouble_again():
            raise Conflict("the base was altered, annotated anew or released meanwhile", doing=doing, hint=AGAIN)
        if trouble:
            hint = "Open the base again with sl.base: that makes them anew, and each copy's next refresh is full"
            raise StateError(trouble, doing=doing, hint=hint)
        return record

    def _trouble_again(self) -> str:
        """The trouble in one state of the base: what was read one after the other may be of several."""
        database, address = self.table.database, self.table.address
        with database.reading():
            anew = BaseSite(describe(database, address), BaseCatalog(database, address.schema))
            record = anew.catalog.base(self.name)
            return "" if record is None else anew.trouble(record)

    def trouble(self, record: BaseRecord) -> str:
        """Why the annotations can't be trusted; empty if they can."""
        self.table.check_annotatable()
        if self.table.annotated_inside:
            return "the annotations are among the columns of the table itself, as the first version made them"
        missing = self.table.missing_annotations(record.key, fields(record.algorithm))
        if missing:
            return f"the annotation column {missing[0]!r} of {self.table.annotations_name!r} was dropped"
        if record.key != self.table.row_key:
            was, now = (", ".join(key.columns) for key in (record.key, self.table.row_key))
            return f"the annotations name rows by {was}, and the table now has {now} for that"
        if not self.table.has_triggers():
            return f"the trigger {self.table.trigger!r} is gone or was disabled, so updates may have passed unseen"
        return ""

    def program(self, record: BaseRecord) -> Program:
        """What was composed for the base when it, or the last one of its copies, was defined."""
        statements = self.statements(record)
        restrictions = {copy.bit: copy.qualifies for copy in self.catalog.copies(record.table) if copy.bit is not None}
        made_for = programs.digest(statements, sorted(restrictions.items()))
        kept = Program.from_text(self.catalog.base_program(record.table))
        if kept is not None and kept.made_for == made_for:
            return kept
        made = Program(made_for, programs.compose_base(statements, restrictions))
        self.catalog.keep_base_program(record.table, made.to_text())
        return made

    def copy_program(self, record: BaseRecord, copy: BaseCopyRecord) -> Program:
        """What was composed for the copy when it was defined."""
        statements = self.statements(record, copy)
        readings = [column.reading.format(quoted(column.name)) for column in chosen_columns(self, copy.columns)]
        made_for = programs.digest(statements, readings)
        kept = self._loaded.get(copy.name) or Program.from_text(self.catalog.copy_program(copy.name))
        if kept is None or kept.made_for != made_for:
            kept = Program(made_for, programs.compose_copy(statements, readings))
            self.catalog.keep_copy_program(copy.name, kept.to_text())
        self._loaded[copy.name] = kept
        return kept

    def prepare(self, record: BaseRecord, copy: BaseCopyRecord) -> None:
        """Composes all that refreshes of the copy will run, and lets the base's database check it."""
        base, own = self.program(record), self.copy_program(record, copy)
        programs.check(self.table.database, Program("", {**base.texts, **own.texts}))

    def statements(self, record: BaseRecord, copy: BaseCopyRecord | None = None) -> Statements:
        """What composes the SQL of the base, or of a copy of it."""
        table = self.table
        base = Statements(table.database.dialect, table.sql, table.annotations, record.key, record.algorithm)
        return base if copy is None else replace(base, qualifies=copy.qualifies)


@contextmanager
def opened(address: Address, *, leaving: bool = False) -> Iterator[BaseSite]:
    """A base's database, open. When `leaving`, its table may be gone, or something else stand in its place."""
    with connect(address) as database:
        yield BaseSite(describe(database, address, leaving=leaving), BaseCatalog(database, address.schema))


@dataclass(frozen=True)
class BaseMessages:
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


def fix_up_base(
    site: BaseSite, copy: BaseCopyRecord | None = None, *, trusted: bool = True
) -> tuple[BaseRecord, FixUpNumbers]:
    """Figure 7 at the next tick of the counter, inside the caller's transaction; `TOUCHED` is left for the messages.

    `copy` is the one that is brought up to date with it. Not `trusted`, it may hold any entry, whatever its bit says.
    """
    database = site.table.database
    site.table.lock()
    site.table.check_unaltered()
    record = site.record(lock=True)
    record = replace(record, time=record.time + 1)
    program = site.program(record)
    programs.forget(database)
    with _merging(database):
        record = _without_deleted(site, record, program)
        numbers = _numbers(record, copy, trusted=trusted)
        met = _enter(database, program, numbers)
        start = _start(record, met.least)
        moved = start != record.start
        record, numbers = replace(record, start=start), replace(numbers, start=start)
        own = program if copy is None else site.copy_program(record, copy)
        few = bool(record.rows) and not moved and met.changed + met.deleted <= FEW * met.rows
        for name in _touching(few=few, deletions=met.rows - met.inserted != record.rows):
            if name != FRESH or UNLIKE not in program:  # there `FRESH` is known already
                own.run(database, name, numbers)
        if database.dialect == "postgres":
            database.execute(f"ANALYZE pg_temp.{TOUCHED}")
        program.run(database, programs.FIX_UP, numbers)
    tail_gap = record.tail_gap if met.has_last or not record.rows else record.time
    last = record.start if met.greatest is None else met.greatest
    record = replace(record, rows=met.rows, last=last, tail_gap=tail_gap)
    site.catalog.put_base(record)
    return record, replace(numbers, tail_gap=tail_gap)


@contextmanager
def _merging(database: Database) -> Iterator[None]:
    """PostgreSQL merges the base with its annotations inside, both of which have an index by address.

    Left to itself it hashes all of one of them, which takes it two to five times as long. Where it can't merge it still
    does. An error ends the transaction, and with it the setting.
    """
    if database.dialect == "postgres":
        database.execute("SET LOCAL enable_hashjoin = off")
    yield
    if database.dialect == "postgres":
        database.execute("SET LOCAL enable_hashjoin TO DEFAULT")


def _without_deleted(site: BaseSite, record: BaseRecord, program: Program) -> BaseRecord:
    """Removes the annotations that have no row any more; `DELETED` are their addresses."""
    database = site.table.database
    if site.table.storage() != record.storage:
        if site.table.altered(record.storage, record.key):
            # Each address may now be another row's, and each row have other values.
            program.run(database, programs.TOUCH_ALL, FixUpNumbers())
        record = replace(record, storage=site.table.noted_storage())
    for name in (UNLIKE, DELETED, programs.REMOVE_DELETED):
        if name in program:
            program.run(database, name, FixUpNumbers())
    return record


def _enter(database: Database, program: Program, numbers: FixUpNumbers) -> _Met:
    """Gives an annotation to each row that has none, and counts what there is then."""
    if UNLIKE in program:
        program.run(database, FRESH, numbers)
        program.run(database, programs.ENTER_UNLIKE, numbers)
        return _meet(database, program, numbers)
    if programs.ENTER_ABOVE in program:
        program.run(database, programs.ENTER_ABOVE, numbers)
    met = _meet(database, program, numbers)
    if met.rows != program.run(database, programs.ROW_COUNT, numbers)[0][0]:
        program.run(database, programs.ENTER, numbers)
        met = _meet(database, program, numbers)
    return met


def enter_given(site: BaseSite, record: BaseRecord) -> None:
    """Gives every row an address, where it has none of its own; inside the caller's transaction."""
    if record.key.given:
        site.table.lock()
        site.program(record).run(site.table.database, programs.ENTER, FixUpNumbers())


def fill(site: BaseSite) -> None:
    """Annotations for the rows of a base that has none yet, in batches: writers wait for one batch at a time.

    They are what fix-up would write. A stopped one goes on where it was.
    """
    record = site.record()
    if record.rows or 0 < record.time >= record.since:
        return
    while True:
        with site.table.database.transaction():
            site.table.lock()
            record = site.record(lock=True)
            if record.rows or not _filled(site, record):
                return


def _filled(site: BaseSite, record: BaseRecord) -> bool:
    """Fills one batch; whether there may be more. Done, the base is as one that was fixed up."""
    database, program, address = site.table.database, site.program(record), quoted(ADDRESS)
    if not record.key.given:
        least = database.execute(f"SELECT min({quoted(record.key.columns[0])}) FROM {site.table.sql}")[0][0]
        record = replace(record, start=_start(record, least))
    counting = f"SELECT count({quoted(PREVIOUS)}), max({address}) FROM {site.table.annotations}"
    before = database.execute(counting)[0][0]
    program.run(database, programs.FILL, FixUpNumbers(now=record.time, start=record.start))
    rows, last = database.execute(f"{counting} WHERE {quoted(PREVIOUS)} IS NOT NULL")[0]
    if rows == before:
        last = record.start if last is None else last
        record = replace(record, rows=rows, last=last, storage=site.table.noted_storage())
    site.catalog.put_base(record)
    return bool(rows != before)


def _start(record: BaseRecord, least: int | None) -> int:
    """The address before the first, with `least` among them."""
    if least is None or least > record.start:
        return record.start
    if least == LOWEST:
        raise KeysError(f"the address {LOWEST} can't be used", doing="fixing up a base", hint="Give it another key")
    return LOWEST


@dataclass(frozen=True)
class _Met:
    """What fix-up meets. `changed` counts the inserted entries, too; `has_last`: the one that was last is there."""

    rows: int
    inserted: int
    changed: int
    deleted: int
    least: int | None
    greatest: int | None
    has_last: bool


def _meet(database: Database, program: Program, numbers: FixUpNumbers) -> _Met:
    rows, inserted, changed, deleted, least, greatest, last = program.run(database, programs.COUNTS, numbers)[0]
    return _Met(rows, inserted, changed or 0, deleted, least, greatest, bool(last))


def _touching(*, few: bool, deletions: bool) -> Sequence[str]:
    """The statements that make `TOUCHED`. If the start moved, the first chain is broken, though none is gone."""
    if not few:
        return (programs.SCAN,)
    return (FRESH, BROKEN if deletions else programs.NO_BROKEN, EVERY, TOUCHED)


def _numbers(record: BaseRecord, copy: BaseCopyRecord | None, *, trusted: bool) -> FixUpNumbers:
    bit = NONE if copy is None or copy.bit is None else copy.bit
    known = bit if trusted else NONE
    return FixUpNumbers(record.time, 0, record.start, known, bit, record.tail_gap, record.last)


def differential(site: BaseSite, copy: BaseCopyRecord, snap_time: int, *, trusted: bool = True) -> BaseMessages:
    """Fix-up and refresh as one transaction: the base is left fixed up, the messages are in memory.

    Fix-up writes the copy's bits as they will be once it takes the messages. If the last ones never reached it, they
    are not `trusted`: entries are then taken for held, as in the paper, until a refresh has arrived again.
    """
    database = site.table.database
    with database.transaction():
        record, numbers = fix_up_base(site, copy, trusted=trusted)
        if snap_time < record.since:
            raise Conflict("the annotations were made anew meanwhile", doing=f"refreshing {copy.name!r}", hint=AGAIN)
        program = site.copy_program(record, copy)
        _find_messages(site, record, copy, replace(numbers, since=snap_time))
        messages = database.read(program.texts[programs.MESSAGES], _SENT_SCHEMA)
        rows = read_rows(site, copy.columns, program.texts[programs.ROWS])
        position = offer(site, copy, record)
    return BaseMessages(position, messages, rows)


def _find_messages(site: BaseSite, record: BaseRecord, copy: BaseCopyRecord, numbers: FixUpNumbers) -> None:
    """Leaves the messages in `SENT`."""
    database, program = site.table.database, site.copy_program(record, copy)
    if MET not in program:
        program.run(database, SENT, numbers)
        return
    own = numbers.since == numbers.now - 1  # the last fix-up was this copy's: what it touched is all that changed
    program.run(database, MET if own else programs.MET_SINCE, numbers)
    met = program.run(database, programs.MET_COUNT, numbers)[0][0]
    qualifying = copy.held / max(record.rows, 1)
    steps = 2 * met / max(qualifying, 1e-3)  # to the least and greatest qualified entry of each run
    if steps <= LOOKED_UP * record.rows:
        program.run(database, SENT, numbers)
        return
    program.run(database, RUNS, numbers)
    program.run(database, programs.SENT_BY_RUNS, numbers)


def offer(site: BaseSite, copy: BaseCopyRecord, record: BaseRecord, *, anchored: bool = True) -> Position:
    """Records, with the fix-up, the position that the copy will have once it takes what is sent."""
    check_begun(site, copy)
    position = Position(record.time, secrets.token_hex(8), anchored)
    site.catalog.put_copy(replace(copy, offered=position))
    return position


def check_begun(site: BaseSite, copy: BaseCopyRecord) -> None:
    """Refuses to go on if another refresh has begun since; asked once the base's record is locked."""
    known = site.catalog.copy(copy.name)
    if known is not None and known.claim != copy.claim:
        raise Fenced("another refresh of the copy has begun", doing=f"refreshing {copy.name!r}", hint=AGAIN)


def read_rows(site: BaseSite, columns: Sequence[str], sql: str) -> pa.Table:
    """Addresses and the chosen columns, as `sql` selects them in this order."""
    return pa.Table.from_batches(row_batches(site, columns, sql), schema=rows_schema(site, columns))


def row_batches(site: BaseSite, columns: Sequence[str], sql: str) -> Iterator[pa.RecordBatch]:
    """The same, a batch at a time; `ADDRESS` comes first."""
    chosen = chosen_columns(site, columns)
    stored = pa.schema([(ADDRESS, pa.int64()), *((column.name, column.stored) for column in chosen)])
    wanted = rows_schema(site, columns)
    for batch in site.table.database.batches(sql, stored):
        yield typed_batch(batch, wanted, site.table.address)


def rows_schema(site: BaseSite, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(ADDRESS, pa.int64()), *((column.name, column.type) for column in chosen_columns(site, columns))])


def chosen_columns(site: BaseSite, columns: Sequence[str]) -> list[TableColumn]:
    known: Mapping[str, TableColumn] = {column.name: column for column in site.table.columns}
    missing = [name for name in columns if name not in known]
    if missing:
        raise StateError(
            f"column {missing[0]!r} is no longer in the base",
            doing=f"reading {site.table.address.shown}",
            hint="Drop the copy and replicate again with the columns that there are",
        )
    return [known[name] for name in columns]
