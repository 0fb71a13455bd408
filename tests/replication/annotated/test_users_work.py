"""Whatever users do to a base, with triggers of their own: copies follow, and refreshes touch nothing of theirs.

The oracle is the query, put to the base by a plain connection after each refresh. Before and after each refresh the
base's rows and what its triggers wrote are the same.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.replication.annotated.conftest import Source, of_postgres
from tests.replication.servers import Postgres

from strandline.errors import InputError, StateError
from strandline.relations.databases.address import parse_address
from strandline.relations.databases.database import connect
from strandline.replication.annotated_base import Base, base
from strandline.replication.copy import Copy

COLUMNS = "k, u, v, note"
SHAPES = {
    "integer key": "k INTEGER PRIMARY KEY, u INTEGER UNIQUE, v INTEGER, note TEXT",
    "text key": "k TEXT PRIMARY KEY, u INTEGER UNIQUE, v INTEGER, note TEXT",
    "two keys": "k INTEGER, u INTEGER UNIQUE, v INTEGER, note TEXT, PRIMARY KEY (k, u)",
    "no key": "k INTEGER, u INTEGER UNIQUE, v INTEGER, note TEXT",
}
NUMBERS = itertools.count()
REFUSALS = ("unique", "duplicate", "staged", "conflict", "in trigger")
TRIGGERS = ("again", "before", "audit", "inserted")


@dataclass(frozen=True)
class User:
    """Somebody who works on the table `t` and knows nothing of Strandline."""

    source: Source

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return self.source.run(sql)

    @property
    def postgres(self) -> bool:
        return self.source.kind == "postgres"

    def start(self, shape: str, triggers: frozenset[str]) -> Base:
        for table in ("t", "staged", "audit", "_strandline_annotations_t", "_strandline_bases", "_strandline_copies"):
            self.run(f"DROP TABLE IF EXISTS {table}")
        self.run(f"CREATE TABLE t ({SHAPES[shape]})")
        self.run("CREATE TABLE audit (note TEXT)")
        for name in sorted(triggers):
            self.create_trigger(name)
        return base(self.source.url, self.source.table("t"))

    def create_trigger(self, name: str) -> None:
        once = "coalesce(NEW.note, '') NOT LIKE '%!'"
        again = "UPDATE t SET note = coalesce(note, '') || '!' WHERE u = NEW.u"
        audit = "INSERT INTO audit (note) VALUES (NEW.note)"
        event = {"inserted": "AFTER INSERT", "before": "BEFORE UPDATE"}.get(name, "AFTER UPDATE")
        if self.postgres:
            body = {"before": "NEW.v := NEW.v + 1;", "audit": f"{audit};"}.get(name, f"IF {once} THEN {again}; END IF;")
            self.run(
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN {body} RETURN NEW; END $$"
            )
            self.run(f"CREATE TRIGGER {name} {event} ON t FOR EACH ROW EXECUTE FUNCTION {name}()")
            return
        body = {"before": "UPDATE t SET v = v + 1 WHERE u = OLD.u", "audit": audit}.get(name, again)
        when = "" if name in ("before", "audit") else f"WHEN {once}"
        self.run(f"CREATE TRIGGER IF NOT EXISTS {name} {event} ON t {when} BEGIN {body}; END")

    def work(self, kind: str, k: int, u: int, v: int) -> None:
        """One statement; one that the table's constraints refuse changes nothing."""
        row = f"({k}, {u}, {v}, 'n')"
        names = f"t ({COLUMNS})"
        conflict = f"ON CONFLICT (u) DO UPDATE SET v = {v}, k = {k}"
        statements = {
            "insert": [f"INSERT INTO {names} VALUES {row}"],
            "update": [f"UPDATE t SET v = {v} WHERE u >= {u}"],
            "delete": [f"DELETE FROM t WHERE u = {u}"],
            "again": [f"DELETE FROM t WHERE u = {u}", f"INSERT INTO {names} VALUES {row}"],
            "move": [f"UPDATE t SET k = {k} WHERE u = {u}"],
            "swap": ["UPDATE t SET v = 9 - v"],
            "replace": [] if self.postgres else [f"REPLACE INTO {names} VALUES {row}"],
            "upsert": [f"INSERT INTO {names} VALUES {row} {conflict}"],
            "update or replace": [] if self.postgres else [f"UPDATE OR REPLACE t SET k = {k}, u = {u} WHERE v = {v}"],
            "stage": ["DROP TABLE IF EXISTS staged", "CREATE TABLE staged AS SELECT * FROM t", "DELETE FROM t"],
            "unstage": ["INSERT INTO t SELECT * FROM staged"],
            "empty": ["TRUNCATE t" if self.postgres else "DELETE FROM t"],
            "vacuum": ["VACUUM FULL t" if self.postgres else "VACUUM"],
            "drop and add": ["ALTER TABLE t DROP COLUMN note", f"ALTER TABLE t ADD COLUMN note TEXT DEFAULT 'd{v}'"],
            "compute anew": [f"ALTER TABLE t ALTER COLUMN v TYPE int USING {v} - v"] if self.postgres else [],
            "as a replica": self.as_a_replica(f"UPDATE t SET v = {v} WHERE u = {u}"),
        }
        for sql in statements[kind]:
            try:
                self.run(sql)
            except Exception as error:
                if not any(word in str(error).lower() for word in REFUSALS):
                    raise

    def as_a_replica(self, sql: str) -> list[str]:
        if not self.postgres:
            return [sql]
        role = "SET session_replication_role = {}"
        return [role.format("replica"), sql, role.format("DEFAULT")]

    def content(self, table: str, where: str = "1 = 1") -> list[tuple[Any, ...]]:
        return sorted(self.run(f"SELECT * FROM {table} WHERE {where}"), key=repr)


KINDS = (
    *("insert", "insert", "insert", "update", "delete", "again", "move", "swap", "replace", "upsert"),
    *("update or replace", "stage", "unstage", "empty", "vacuum", "as a replica", "refresh", "refresh", "refresh"),
    *("drop and add", "compute anew"),
)
step = st.tuples(st.sampled_from(KINDS), st.integers(-1, 6), st.integers(1, 6), st.integers(0, 9))
ROWS: Any = [("insert", number, number, number) for number in range(1, 7)]
REFRESH = ("refresh", 0, 1, 0)


@settings(max_examples=examples(10))
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    triggers=st.frozensets(st.sampled_from(TRIGGERS)),
    steps=st.lists(step, min_size=4, max_size=24),
)
@example(shape="integer key", triggers=frozenset(), steps=[*ROWS, ("stage", 0, 1, 0), ("unstage", 0, 1, 0)])
@example(shape="integer key", triggers=frozenset(TRIGGERS), steps=[*ROWS, REFRESH, ("update", 0, 3, 2)])
@example(
    shape="no key", triggers=frozenset(), steps=[*ROWS, ("delete", 0, 2, 0), ("refresh", 0, 1, 0), ("vacuum", 0, 1, 0)]
)
def test_copies_follow_and_nothing_of_the_users_is_touched(
    source: Source, shape: str, triggers: frozenset[str], steps: Any
) -> None:
    user, number = User(source), next(NUMBERS)
    here = user.start(shape, triggers)
    copies: dict[str, Copy] = {}
    for kind, k, u, v in [*steps, REFRESH, ("refresh", 0, 2, 0)]:
        if kind == "refresh":
            follow(user, here, copies, ("v < 5", "1 = 1")[u % 2], number)
        else:
            user.work(kind, k, u, v)


def follow(user: User, here: Base, copies: dict[str, Copy], where: str, number: int) -> None:
    """Makes or refreshes the copy with this condition, and looks at both sides."""
    url = user.source.target("sqlite", f"copy_{number}_{where[0]}")
    before = (user.content("t"), user.content("audit"))
    if where in copies:
        assert copies[where].refresh("differential").method == "differential"
    else:
        copies[where] = here.replicate(url, where=where)
    assert (user.content("t"), user.content("audit")) == before
    with connect(parse_address(url)) as database:
        rows = database.execute(f"SELECT {COLUMNS} FROM {parse_address(url).table}")
    assert sorted(rows, key=repr) == user.content("t", where)
    assert copies[where].verify().equal


def test_a_row_whose_update_was_rolled_back_is_no_matter(source: Source) -> None:
    user = User(source)
    copy = user.start("integer key", frozenset({"again"})).replicate(source.target("sqlite", "copy"))
    user.work("insert", 1, 1, 1)
    copy.refresh("differential")
    for sql in ("BEGIN", "UPDATE t SET v = 5", "ROLLBACK"):
        user.run(sql)
    assert copy.refresh("differential").messages == 0


@pytest.mark.parametrize("disabled", ["ALL", "_strandline_touch_t"])
def test_a_trigger_that_was_disabled_for_a_while_is_found(postgres: Postgres, tmp_path: Any, disabled: str) -> None:
    source = of_postgres(postgres, tmp_path)
    user = User(source)
    here = user.start("integer key", frozenset({"audit"}))
    user.work("insert", 1, 1, 1)
    copy = here.replicate(source.target("sqlite", "copy"))
    user.run(f"ALTER TABLE t DISABLE TRIGGER {disabled}")
    user.run("UPDATE t SET v = 7")
    user.run(f"ALTER TABLE t ENABLE TRIGGER {disabled}")
    with pytest.raises(StateError, match="disabled"):
        copy.refresh()
    base(source.url, source.table("t"))
    assert copy.refresh().method == "full"
    assert copy.verify().equal


def test_a_writer_needs_no_right_to_the_annotations(postgres: Postgres, tmp_path: Any) -> None:
    source = of_postgres(postgres, tmp_path)
    user, role = User(source), f"clerk_{postgres.schema}"
    copy = user.start("integer key", frozenset()).replicate(source.target("sqlite", "copy"))
    user.run(f"CREATE ROLE {role}")
    try:
        user.run(f"GRANT USAGE ON SCHEMA {postgres.schema} TO {role}")
        user.run(f"GRANT SELECT, INSERT, UPDATE ON t TO {role}")
        user.run(f"SET ROLE {role}")
        user.work("insert", 1, 1, 1)
        user.work("update", 1, 1, 2)
        user.run("RESET ROLE")
        assert copy.refresh("differential").messages == 1
        assert copy.verify().equal
    finally:
        user.run("RESET ROLE")
        user.run(f"DROP OWNED BY {role}")
        user.run(f"DROP ROLE {role}")


def test_parents_are_refused_by_name_and_their_children_are_bases(postgres: Postgres, tmp_path: Any) -> None:
    source = of_postgres(postgres, tmp_path)
    source.run("CREATE TABLE parent (id INTEGER PRIMARY KEY, v INTEGER)")
    source.run("CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)")
    source.run("CREATE TABLE months (id INTEGER PRIMARY KEY, v INTEGER) PARTITION BY RANGE (id)")
    source.run("CREATE TABLE january PARTITION OF months FOR VALUES FROM (0) TO (10)")
    source.run("CREATE TABLE rest PARTITION OF months DEFAULT")
    for name, what in (("parent", "others inherit"), ("months", "a partitioned table")):
        with pytest.raises(InputError, match=what):
            base(source.url, source.table(name))
    for name, above in (("child", "parent"), ("january", "months")):
        here = base(source.url, source.table(name))
        copy = here.replicate(source.target("sqlite", name))
        source.run(f"INSERT INTO {name if name == 'child' else above} VALUES (1, 1), (2, 2), (3, 3)")
        copy.refresh("differential")
        source.run(f"UPDATE {above} SET v = v + 1, id = CASE WHEN id = 2 THEN 22 ELSE id END WHERE id > 1")
        copy.refresh("differential")
        assert copy.verify().equal
        with connect(parse_address(source.target("sqlite", name))) as database:
            rows = database.execute(f"SELECT id, v FROM {name}")
        assert sorted(rows) == sorted(source.run(f"SELECT id, v FROM ONLY {name}"))


def test_a_table_that_becomes_a_parent_is_refused_from_then_on(postgres: Postgres, tmp_path: Any) -> None:
    source = of_postgres(postgres, tmp_path)
    copy = User(source).start("integer key", frozenset()).replicate(source.target("sqlite", "copy"))
    source.run("CREATE TABLE child () INHERITS (t)")
    with pytest.raises(InputError, match="others inherit"):
        copy.refresh()
