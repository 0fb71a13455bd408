"""A toy installer: pages are JSON dictionaries, keys are strings, at most `FULL` rows a page."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from strandline.pages import (
    CommitNumber,
    Draft,
    Entry,
    Environment,
    Mode,
    PageStore,
    ReadView,
    TableEdit,
    TableId,
    Transaction,
    Version,
    check_store,
    create_store,
    open_store,
)
from strandline.storage import Storage

FULL = 8


class ToyInstaller:
    """Row changes are (key, value) pairs; the value None deletes."""

    def install(self, edit: TableEdit, changes: Sequence[object]) -> None:
        for change in changes:
            key, value = row_change(change)
            if value == "poison":
                raise ValueError("poison")
            self._one(edit, key, value)

    def _one(self, edit: TableEdit, key: str, value: object) -> None:
        found = edit.page_for(key.encode())
        if found is None:
            if value is not None:
                edit.index(b"", edit.add(draft(edit, {key: value})))
            return
        separator, entry = found
        rows = read_rows(edit, entry)
        rows.pop(key, None)
        if value is not None:
            rows[key] = value
        if not rows:
            edit.remove(entry.number)
            edit.unindex(separator)
            self._mend(edit)
        elif len(rows) <= FULL:
            edit.put(entry.number, draft(edit, rows))
        else:
            keys = sorted(rows)
            middle = keys[len(keys) // 2]
            edit.put(entry.number, draft(edit, {k: v for k, v in rows.items() if k < middle}))
            new = edit.add(draft(edit, {k: v for k, v in rows.items() if k >= middle}))
            edit.index(middle.encode(), new)
            edit.moved(entry.number, new)

    def _mend(self, edit: TableEdit) -> None:
        """The first page of a table always has the separator b""."""
        pages = edit.pages_between()
        if pages and pages[0][0] != b"":
            edit.unindex(pages[0][0])
            edit.index(b"", pages[0][1].number)


@dataclass
class Footprint:
    """The keys that a transaction read or wrote, by domain; None for a whole table."""

    keys: set[tuple[TableId, str]] = field(default_factory=set)
    tables: set[TableId] = field(default_factory=set)


class ToyValidator:
    """A conflict is a row that changed and that was read or written."""

    def conflict(self, transaction: Transaction, older: ReadView, newer: ReadView) -> str | None:
        footprint = transaction.footprint
        if not isinstance(footprint, Footprint):
            return None
        domains = {domain for domain, _ in footprint.keys} | footprint.tables
        for domain in domains:
            before, after = table_rows(older, domain), table_rows(newer, domain)
            changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
            if changed and domain in footprint.tables:
                return "a table that was read has changed"
            for key in changed:
                if (domain, key) in footprint.keys:
                    return f"row {key} has changed"
        return None


def row_change(payload: object) -> tuple[str, object]:
    """A payload as what it is."""
    assert isinstance(payload, tuple)
    return payload[0], payload[1]


def draft(edit: TableEdit, rows: dict[str, object]) -> Draft:
    data = json.dumps(rows).encode()
    keys = sorted(rows)
    return Draft(edit.write(data, len(rows)), rows=len(rows), least=keys[0].encode(), greatest=keys[-1].encode())


def read_rows(source: TableEdit | ReadView, entry: Entry) -> dict[str, object]:
    assert entry.base is not None
    rows: dict[str, object] = json.loads(source.read(entry.base))
    return rows


def table_rows(view: ReadView, domain: TableId) -> dict[str, object]:
    """All rows of a table; empty when it is not there."""
    rows: dict[str, object] = {}
    for entry in live_entries(view, domain):
        rows.update(read_rows(view, entry))
    return rows


def all_rows(view: ReadView) -> dict[str, dict[str, object]]:
    """Every table with its rows."""
    return {entry.name: table_rows(view, entry.domain) for entry in view.domains()}


def domain_of(version: Version | ReadView, name: str) -> TableId:
    view = version if isinstance(version, ReadView) else version.view()
    found = view.find_domain(name)
    assert found is not None, name
    return found.domain


def live_entries(view: ReadView, domain: TableId) -> list[Entry]:
    """The data pages of a domain by logical number (not by key)."""
    entries = view.entries_since(domain, CommitNumber(-1))
    return [entry for entry in entries if entry.base is not None and not entry.directory]


def read(transaction: Transaction, domain: TableId, key: str) -> object:
    """A locked read that sees the transaction's own writes."""
    _note(transaction, domain, key)
    transaction.lock_row(domain, key.encode(), Mode.S)
    for own, value in map(row_change, reversed(transaction.rows.get(domain, ()))):
        if own == key:
            return value
    entry = transaction.view().page_for(domain, key.encode())
    return None if entry is None else read_rows(transaction.view(), entry).get(key)


def write(transaction: Transaction, domain: TableId, key: str, value: object) -> None:
    _note(transaction, domain, key)
    if domain > 0:
        transaction.lock_row(domain, key.encode(), Mode.X)
    transaction.change(domain, (key, value))


def put(version: Version, table: str, **rows: object) -> int:
    """One transaction that writes rows, creating the table when it is not there."""
    with version.begin() as transaction:
        found = version.view().find_domain(table)
        domain = found.domain if found is not None else transaction.create_domain(table, b"{}")
        for key, value in rows.items():
            write(transaction, domain, key, value)
    return version.view().commit


def _note(transaction: Transaction, domain: TableId, key: str) -> None:
    if transaction.footprint is None:
        transaction.footprint = Footprint()
    assert isinstance(transaction.footprint, Footprint)
    transaction.footprint.keys.add((domain, key))


class Clock:
    """Time that passes when told to, and ids that count and never repeat."""

    ids = itertools.count(1)

    def __init__(self) -> None:
        self.time = 1000.0
        self.ahead = 0.0
        """By how much the clock on the wall is wrong."""

    def environment(self) -> Environment:
        return Environment(now=self._now, monotonic=lambda: self.time, new_id=self._id, patience=60.0)

    def _now(self) -> float:
        self.time += 0.001
        return self.time + self.ahead

    def _id(self) -> str:
        return f"{next(self.ids):016x}"


def created(storage: Storage, clock: Clock | None = None) -> PageStore:
    return create_store(storage, ToyInstaller(), ToyValidator(), (clock or Clock()).environment())


def opened(storage: Storage, clock: Clock | None = None) -> PageStore:
    environment = clock.environment() if clock is not None else Environment()
    return open_store(storage, ToyInstaller(), ToyValidator(), environment)


def assert_sound(storage: Storage) -> None:
    """Every invariant and every checksum holds, and nothing is unreachable."""
    report = check_store(storage)
    assert report.ok, (report.findings, report.unreachable)
