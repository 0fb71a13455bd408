"""The manifest of a dump and its parts, as plain records, and their JSON.

A dump holds *states*: of each version the present one, its permanent snapshots, and those that other versions were
forked from. A state is identified by its version's pointer and its commit, and never changes. So a dump lists all
states that were there and *records* only those that its parent does not have, each as what changed since the state
before it (`pred`): the tables' headers, and the entries of their pages, null entries among them (section 4.2). The page
table itself is not dumped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.errors import Damaged, FormatError
from strandline.pages import (
    CommitNumber,
    Entry,
    Json,
    PageRef,
    TableEntry,
    TableId,
    VersionObject,
    decode_entry,
    decode_table_entry,
    encode_item,
    encode_page_ref,
)
from strandline.storage import JsonRecord, JsonRow

FORMAT = 1
"""The number of the dumps' format. A greater one is refused: this program would not understand it."""


class StateKey(NamedTuple):
    """A state: the storage name of its version's pointer, and its commit number."""

    version: VersionObject
    commit: CommitNumber

    @classmethod
    def from_json(cls, row: Json) -> StateKey:
        """From the list that a pair is in JSON."""
        return cls(*row)


TableSet = frozenset[TableId] | None
"""The tables that a state holds; None for all."""


def covers(held: TableSet, wanted: TableSet) -> bool:
    """Whether a state that holds `held` has everything of one that holds `wanted`."""
    return held is None or (wanted is not None and wanted <= held)


@dataclass(frozen=True, slots=True)
class SnapshotFacts(JsonRow):
    """A permanent snapshot of a version."""

    commit: CommitNumber
    name: str
    taken: float
    domains: TableSet = None


@dataclass(frozen=True, slots=True)
class VersionFacts(JsonRecord):
    """A version as it was dumped. `swap` identifies its last swap, `log` its last ones, oldest first.

    `base` is the state of its parent that it stands on; None for the first version, and when it was dumped alone.
    """

    object: VersionObject
    name: str
    commit: CommitNumber
    swap: str
    base: StateKey | None
    snapshots: tuple[SnapshotFacts, ...] = ()
    log: tuple[Json, ...] = ()

    @property
    def current(self) -> StateKey:
        return StateKey(self.object, self.commit)


@dataclass(frozen=True, slots=True)
class RecordedState:
    """A state that a dump records, with what changed after `pred` (everything, when there is none).

    `part` tells which part of the dump's index has its headers and entries.
    """

    key: StateKey
    domains: TableSet
    pred: StateKey | None
    part: int


@dataclass(frozen=True, slots=True)
class StateChanges:
    """A state's part: headers of all tables changed since `pred`, and page-table entries by table.

    Entries of a table are those changed since the nearest state before that holds the table.
    """

    headers: Mapping[TableId, TableEntry]
    entries: Mapping[TableId, tuple[Entry, ...]]


@dataclass(frozen=True, slots=True)
class Pack:
    """Pages that are stored together, one behind the other. `bytes` is what the pack takes."""

    name: str
    bytes: int
    pages: tuple[PageRef, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestPart(JsonRow):
    """A piece of the index: its name in the dump, its size and the checksum of its stored bytes."""

    name: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class DumpScope(JsonRecord):
    """What is dumped: everything, one version, or some tables of a version."""

    version: str | None = None
    tables: tuple[str, ...] | None = None

    def __str__(self) -> str:
        chosen = [] if self.tables is None else [", ".join(self.tables)]
        chosen += [] if self.version is None else [f"version {self.version}"]
        return " of ".join(chosen) or "the whole store"


@dataclass(frozen=True, slots=True)
class TableFacts(JsonRow):
    """A table of a version, for people: its sizes, and its record as the tables wrote it."""

    version: str
    name: str
    rows: int
    pages: int
    bytes: int
    record: str


@dataclass(frozen=True, slots=True)
class DumpManifest:
    """What a dump holds. `parent` is the dump that it stands on, with the checksum of that one's manifest."""

    id: str
    attempt: int
    level: int
    parent: tuple[str, str] | None
    store: str
    taken: float
    scope: DumpScope
    synthetic: bool
    next_block: int
    versions: tuple[VersionFacts, ...]
    states: Mapping[StateKey, TableSet]
    recorded: tuple[RecordedState, ...]
    parts: tuple[ManifestPart, ...] = ()
    packs: tuple[Pack, ...] = ()
    tables: tuple[TableFacts, ...] = ()
    freed: int = 0
    dropped: tuple[str, ...] = field(default=())

    def version(self, name: str) -> VersionFacts | None:
        """The version of that name."""
        return next((one for one in self.versions if one.name == name), None)


def manifest_to_json(one: DumpManifest) -> Json:
    """The manifest without its packs' pages: those stand in the last part of the index."""
    return {
        "format": FORMAT,
        "id": one.id,
        "attempt": one.attempt,
        "level": one.level,
        "parent": None if one.parent is None else list(one.parent),
        "store": one.store,
        "taken": one.taken,
        "scope": one.scope.to_json(),
        "synthetic": one.synthetic,
        "next_block": one.next_block,
        "versions": [version.to_json() for version in one.versions],
        "states": [[*key, _sorted(held)] for key, held in one.states.items()],
        "recorded": [[*r.key, _sorted(r.domains), r.pred, r.part] for r in one.recorded],
        "parts": [part.to_json() for part in one.parts],
        "packs": [[p.name, p.bytes] for p in one.packs],
        "tables": [table.to_json() for table in one.tables],
        "freed": one.freed,
        "dropped": list(one.dropped),
    }


def manifest_from_json(body: Json, where: str) -> DumpManifest:
    """The reverse of `manifest_to_json`."""
    check_format(body, where)
    try:
        return DumpManifest(
            id=body["id"],
            attempt=body["attempt"],
            level=body["level"],
            parent=None if body["parent"] is None else (body["parent"][0], body["parent"][1]),
            store=body["store"],
            taken=body["taken"],
            scope=DumpScope.from_json(body["scope"]),
            synthetic=body["synthetic"],
            next_block=body["next_block"],
            versions=tuple(map(VersionFacts.from_json, body["versions"])),
            states={StateKey(row[0], row[1]): _set_of(row[2]) for row in body["states"]},
            recorded=tuple(
                RecordedState(StateKey(r[0], r[1]), _set_of(r[2]), r[3] and StateKey(*r[3]), r[4])
                for r in body["recorded"]
            ),
            parts=tuple(map(ManifestPart.from_json, body["parts"])),
            packs=tuple(Pack(*row) for row in body["packs"]),
            tables=tuple(map(TableFacts.from_json, body["tables"])),
            freed=body["freed"],
            dropped=tuple(body["dropped"]),
        )
    except (KeyError, IndexError, TypeError) as error:
        raise Damaged(f"{where} lacks something that a manifest has ({error})", doing=f"reading {where}") from None


def check_format(body: Json, where: str) -> None:
    """Refuse what a newer release wrote."""
    number = body.get("format") if isinstance(body, dict) else None
    if not isinstance(number, int):
        raise FormatError(f"{where} has no format number", doing=f"reading {where}")
    if number > FORMAT:
        raise FormatError(
            f"{where} has format {number}; this program knows formats up to {FORMAT}",
            doing=f"reading {where}",
            hint="Use a newer release of Strandline",
        )


def changes_to_json(one: StateChanges) -> Json:
    """A state's part of the index."""
    headers = [[header.domain, *encode_item(header)] for header in one.headers.values()]
    entries = [[domain, [[e.number, *encode_item(e)] for e in rows]] for domain, rows in one.entries.items()]
    return {"headers": headers, "entries": entries}


def changes_from_json(body: Json) -> StateChanges:
    """The reverse of `changes_to_json`."""
    headers = [decode_table_entry(row[0], row) for row in body["headers"]]
    entries = {TableId(domain): tuple(decode_entry(row[0], row) for row in rows) for domain, rows in body["entries"]}
    return StateChanges({header.domain: header for header in headers}, entries)


def packs_to_json(packs: tuple[Pack, ...]) -> Json:
    """The last part of the index: which pages stand in which pack, in order."""
    return [[pack.name, pack.bytes, [encode_page_ref(page) for page in pack.pages]] for pack in packs]


def packs_from_json(body: Json) -> tuple[Pack, ...]:
    """The reverse of `packs_to_json`."""
    return tuple(Pack(row[0], row[1], tuple(PageRef(*page) for page in row[2])) for row in body)


def _sorted(held: TableSet) -> Json:
    return None if held is None else sorted(held)


def _set_of(row: Json) -> TableSet:
    return None if row is None else frozenset(row)
