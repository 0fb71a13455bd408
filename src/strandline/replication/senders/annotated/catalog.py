"""What a base's database remembers: one record for each annotated table, one for each copy of it.

Both are plain JSON in two small tables beside the base, changed in the same transactions as the annotations, so that
they are as recoverable as the base itself: the counter that gives the times is part of the record. Beside each record
is the SQL that was composed for it. No secret is ever in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.relations import Database
from strandline.replication.message import Position
from strandline.replication.senders.annotated.base_table import BASES, COPIES, MARKED, RowKey
from strandline.storage import JsonRecord
from strandline.values import quoted


@dataclass(frozen=True)
class BaseRecord(JsonRecord):
    """An annotated table. `time` is the recoverable counter: one more for each fix-up.

    `key` tells its rows apart; `storage` is what the table's `storage` was at the last fix-up. `start` is the address
    before the first; `last` and `tail_gap` are the greatest address, and when entries above it last went; `rows` is how
    many there were, all as of the last fix-up. `since` is when the annotations were made: no differential starts before
    it. `bits` is how many bits copies have ever used.
    """

    table: str
    id: str
    key: RowKey
    algorithm: str = MARKED
    time: int = 0
    start: int = 0
    last: int = 0
    tail_gap: int = 0
    rows: int = 0
    since: int = 0
    bits: int = 0
    storage: str = ""

    @property
    def address(self) -> str:
        """The user's column that holds addresses, or `ADDRESS`."""
        return self.key.address


@dataclass(frozen=True)
class BaseCopyRecord(JsonRecord):
    """A copy of a base. `taken` is the position that it is known to have; `offered` the one last sent to it.

    `bit` is its own among the bits of entries; a copy that came when all were taken has none. `held` is how many rows
    it had when they were last counted, `uncounted` how many messages went to it since. `expected` is the way that was
    found to be the cheaper one when it was defined, and why.

    `where` is what the user said, `qualifies` what it means in the base's own SQL, checked when the copy was defined.
    `claim` is a token of the refresh that began last: no other one offers anything.
    A copy that says it stands anywhere else belongs to another history of the base.
    """

    name: str
    base: str
    bit: int | None
    target: str
    columns: tuple[str, ...]
    where: str | None = None
    qualifies: str = "(1 = 1)"
    restricted_by: tuple[str, ...] = ()
    method: str = "auto"
    taken: Position | None = None
    offered: Position | None = None
    held: int = 0
    uncounted: int = 0
    claim: str = ""
    expected: Mapping[str, Any] = field(default_factory=dict)
    last: Mapping[str, Any] = field(default_factory=dict)


class BaseCatalog:
    """The two tables, in the schema of the base."""

    def __init__(self, database: Database, schema: str | None) -> None:
        self._database = database
        self._schema = schema
        self._seen = False

    def exists(self) -> bool:
        self._seen = self._seen or bool(self._database.columns(BASES, self._schema))
        return self._seen

    def make(self) -> None:
        for name in (BASES, COPIES):
            self._database.execute(
                f"CREATE TABLE IF NOT EXISTS {quoted(self._schema, name)} "
                "(name text PRIMARY KEY, record text NOT NULL, program text)"
            )

    def base(self, table: str, *, lock: bool = False) -> BaseRecord | None:
        record = self._get(BASES, table, lock=lock) if self.exists() else None
        return None if record is None else _base(record)

    def bases(self) -> list[BaseRecord]:
        if not self.exists():
            return []
        rows = self._database.execute(f"SELECT record FROM {quoted(self._schema, BASES)} ORDER BY name")
        return [_base(json.loads(text)) for (text,) in rows]

    def put_base(self, record: BaseRecord) -> None:
        self._put(BASES, record.table, record)

    def drop_base(self, table: str) -> None:
        self._database.execute(f"DELETE FROM {quoted(self._schema, BASES)} WHERE name = ?", [table])

    def remove_if_empty(self) -> None:
        """Takes the two tables away once no base needs them."""
        if not self.bases():
            self._seen = False
            for name in (BASES, COPIES):
                self._database.execute(f"DROP TABLE {quoted(self._schema, name)}")

    def copy(self, name: str) -> BaseCopyRecord | None:
        record = self._get(COPIES, name, lock=False) if self.exists() else None
        return None if record is None else BaseCopyRecord.from_json(record)

    def copies(self, base: str | None = None) -> list[BaseCopyRecord]:
        if not self.exists():
            return []
        rows = self._database.execute(f"SELECT record FROM {quoted(self._schema, COPIES)} ORDER BY name")
        records = [BaseCopyRecord.from_json(json.loads(text)) for (text,) in rows]
        return [record for record in records if base in (None, record.base)]

    def put_copy(self, record: BaseCopyRecord) -> None:
        self._put(COPIES, record.name, record)

    def drop_copy(self, name: str) -> None:
        self._database.execute(f"DELETE FROM {quoted(self._schema, COPIES)} WHERE name = ?", [name])

    def base_program(self, table: str) -> str | None:
        """The SQL that was composed for a base, as `program` keeps it."""
        return self._program(BASES, table)

    def copy_program(self, name: str) -> str | None:
        return self._program(COPIES, name)

    def keep_base_program(self, table: str, text: str) -> None:
        self._keep(BASES, table, text)

    def keep_copy_program(self, name: str, text: str) -> None:
        self._keep(COPIES, name, text)

    def _program(self, table: str, name: str) -> str | None:
        rows = self._database.execute(f"SELECT program FROM {quoted(self._schema, table)} WHERE name = ?", [name])
        return rows[0][0] if rows else None

    def _keep(self, table: str, name: str, text: str) -> None:
        self._database.execute(f"UPDATE {quoted(self._schema, table)} SET program = ? WHERE name = ?", [text, name])

    def _get(self, table: str, name: str, *, lock: bool) -> dict[str, Any] | None:
        locking = " FOR UPDATE" if lock and self._database.dialect == "postgres" else ""
        sql = f"SELECT record FROM {quoted(self._schema, table)} WHERE name = ?{locking}"
        rows = self._database.execute(sql, [name])
        return json.loads(rows[0][0]) if rows else None

    def _put(self, table: str, name: str, record: JsonRecord) -> None:
        self._database.execute(
            f"INSERT INTO {quoted(self._schema, table)} (name, record) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET record = excluded.record",
            [name, json.dumps(record.to_json(), sort_keys=True)],
        )


def _base(record: dict[str, Any]) -> BaseRecord:
    """Records of the first version had no key: `site.record` says what to do with such a base."""
    return BaseRecord.from_json({"key": {"columns": (), "address": record.get("address", "")}, **record})
