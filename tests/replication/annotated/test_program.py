"""The SQL of a refresh is composed and checked when the copy is defined, kept in the base's database, and then run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.replication.annotated.conftest import Source, of_postgres
from tests.replication.annotated.orders import INSERT, orders, query, rows_at
from tests.replication.servers import Postgres

from strandline.errors import StorageError
from strandline.relations import Address
from strandline.relations.databases.database import Database
from strandline.replication.senders.annotated import program
from strandline.replication.senders.annotated.base_table import RowKey
from strandline.replication.senders.annotated.fix_up import fix_up_base, opened
from strandline.replication.senders.annotated.program import Program, compose_base, compose_copy
from strandline.replication.senders.annotated.statements import UNLIKE, FixUpNumbers, Statements

COMPOSERS = ("compose_base", "compose_copy", "compose_fix_up")


def composing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which composers are called from now on."""
    called: list[str] = []
    for name in COMPOSERS:
        composer = getattr(program, name)

        def noted(*args: Any, composer: Any = composer, name: str = name) -> Any:
            called.append(name)
            return composer(*args)

        monkeypatch.setattr(program, name, noted)
    return called


def executed(monkeypatch: pytest.MonkeyPatch, dialect: str) -> list[str]:
    """The statements that databases of this dialect are given from now on."""
    said: list[str] = []

    def watch(self: Database, step: str) -> None:
        if self.dialect == dialect:
            said.append(step)

    monkeypatch.setattr(Database, "watch", watch)
    return said


@pytest.mark.parametrize("algorithm", ["paper", "marked"])
def test_a_refresh_composes_nothing_and_runs_the_texts_that_were_kept(
    source: Source, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = source.target("duckdb", "copy")
    copy = orders(source, 40, algorithm=algorithm).replicate(url, where="price < 5")
    called = composing(monkeypatch)
    said = executed(monkeypatch, source.kind)
    turns = []
    for turn in range(2):
        source.run(f"UPDATE orders SET price = {turn} WHERE id = {7 + turn}")
        source.run(f"DELETE FROM orders WHERE id = {20 + turn}")
        source.run(f"{INSERT}({100 + turn}, 'new', 1)")
        said.clear()
        copy.refresh("differential")
        turns.append(list(said))
        assert rows_at(url) == query(source, "price < 5")
    copy.refresh("full")
    copy.refresh()
    assert not called
    assert turns[0] == turns[1]
    with opened(_address(copy)) as site:
        record, kept = site.record(), site.catalog.copy("copy")
        assert kept is not None
        texts = {*site.program(record).texts.values(), *site.copy_program(record, kept).texts.values()}
    made = [text for text in turns[0] if text.startswith(("CREATE TEMP TABLE", "UPDATE", "WITH")) and "orders" in text]
    assert made
    assert set(made) <= texts


def test_postgres_finds_what_came_and_went_in_one_merge_and_plans_as_before_after_the_fix_up(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = orders(of_postgres(postgres, tmp_path), 2000).replicate(f"duckdb:///{tmp_path}/copy.duckdb#copy")
    postgres.run("ANALYZE")
    plans: dict[str, str] = {}
    run = Program.run

    def explained(self: Program, database: Database, name: str, numbers: FixUpNumbers) -> list[Any]:
        plan = database.execute(f"EXPLAIN {self.texts[name]}", numbers.values())
        plans[name] = "\n".join(str(line) for (line,) in plan)
        return run(self, database, name, numbers)

    monkeypatch.setattr(Program, "run", explained)
    with opened(_address(copy)) as site, site.table.database.transaction():
        asked = "SELECT current_setting('enable_hashjoin')"
        before = site.table.database.execute(asked)
        fix_up_base(site)
        assert site.table.database.execute(asked) == before
    assert "Merge Full Join" in plans[UNLIKE]


def test_a_new_copy_is_known_to_the_fix_up_of_all_and_a_dropped_one_no_longer(source: Source) -> None:
    base = orders(source, 12)
    one = base.replicate(source.target("duckdb", "one"), where="price < 5")
    two = base.replicate(source.target("sqlite", "two"), where="price >= 7")
    assert ">= 7" in _fix_up(one)
    two.drop()
    assert ">= 7" not in _fix_up(one)


def _address(copy: Any) -> Address:
    return cast(Address, copy._sender.base)


def _fix_up(copy: Any) -> str:
    with opened(_address(copy)) as site:
        kept = Program.from_text(site.catalog.base_program(site.name))
        assert kept is not None
        return kept.texts[program.FIX_UP]


def test_texts_of_another_edition_are_composed_anew(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    url = source.target("duckdb", "copy")
    copy = orders(source, 12).replicate(url, where="price < 5")
    monkeypatch.setattr(program, "EDITION", program.EDITION + 1)
    called = composing(monkeypatch)
    source.run("UPDATE orders SET price = 1 WHERE id = 3")
    copy.refresh("differential")
    assert {"compose_base", "compose_copy"} <= set(called)
    called.clear()
    copy.refresh("differential")
    assert not called
    assert rows_at(url) == query(source, "price < 5")


def test_every_statement_is_checked_by_the_database_when_the_copy_is_defined(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = orders(source, 12)
    good = program.compose_copy
    monkeypatch.setattr(program, "compose_copy", lambda *args: {**good(*args), program.ROWS: "SELECT no_such"})
    with pytest.raises(StorageError, match="no_such"):
        base.replicate(source.target("duckdb", "copy"), where="price < 5")
    assert base.copies() == []


def test_the_edition_grows_with_the_texts() -> None:
    """If this fails, other SQL is composed than before: grow `EDITION`, so that kept texts are made anew."""
    made: list[Any] = []
    for dialect in ("postgres", "sqlite"):
        for algorithm in ("paper", "marked"):
            keys = [RowKey(("id",), "id"), *([RowKey(("a", "b"), given=True)] if dialect == "postgres" else [])]
            for key in keys:
                base = Statements(dialect, '"orders"', '"notes"', key, algorithm)
                made += [compose_base(base, {0: "(a < 5)"}), compose_copy(base, ['"name"'])]
    assert (program.EDITION, program.digest(made)[:12]) == (5, "b77d6387698f")
