"""Random views and transactions on every kind of copy: after each refresh a copy holds what the query gives."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.replication.servers import Postgres, _server
from tests.views.histories import TINY, Relations, multiset, perform, relations, transactions, views
from tests.views.nested_queries import nested_queries

from strandline.replication.definition import COUNT
from strandline.replication.targets.target import open_target
from strandline.storage import MemoryStorage
from strandline.store import create_on

_numbers = itertools.count()


@dataclass(frozen=True)
class Targets:
    """A place of each kind, new for each example."""

    folder: Path
    server: Postgres

    def urls(self) -> dict[str, str]:
        number = next(_numbers)
        folder = self.folder / str(number)
        folder.mkdir()
        return {
            "duckdb": f"duckdb:///{folder}/f.duckdb#copy",
            "sqlite": f"sqlite:///{folder}/f.db#copy",
            "parquet": f"parquet:///{folder}/rows",
            "store": f"strandline:///{folder}/shop#copy",
            "postgres": self.server.table(f"copy_{number}"),
            "delta": f"delta:///{folder}/delta",
        }


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    server = Postgres(str(_server().get_uri()), "replica_kinds")
    Postgres(server.url, "public").run("CREATE SCHEMA replica_kinds")
    yield Targets(tmp_path_factory.mktemp("copies"), server)
    Postgres(server.url, "public").run("DROP SCHEMA replica_kinds CASCADE")


def held(url: str, names: list[str]) -> Counter[tuple[Any, ...]]:
    """What a copy holds, as a multiset: counted rows as often as they count."""
    with open_target(url, create=False) as replica:
        found: Counter[tuple[Any, ...]] = Counter()
        for batch in replica.rows():
            table = pa.Table.from_batches([batch])
            counts = table.column(COUNT).to_pylist() if COUNT in table.column_names else [1] * len(table)
            rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
            for row, count in zip(rows, counts, strict=True):
                found[row] += count
        return found


@pytest.mark.parametrize("drawn", [views, nested_queries])
@settings(max_examples=examples(4))
@given(st.data())
def test_after_each_refresh_every_kind_of_copy_equals_the_query(
    targets: Targets, drawn: Callable[[Relations], st.SearchStrategy[str]], data: st.DataObject
) -> None:
    known: Relations = data.draw(relations(most=4))
    with create_on(MemoryStorage(), limits=TINY) as store:
        known.create(store)
        sql = data.draw(drawn(known))
        known.create_views(store)
        maintain = data.draw(st.sampled_from(["eager", "deferred"]))
        note(f"{maintain}: {sql}")
        view = store.view("v", sql, maintain=maintain)
        urls = targets.urls()
        copies = {kind: view.replicate(url, name=kind) for kind, url in urls.items()}
        for _ in range(2):
            perform(store, known, data.draw(transactions(known)))
            # One of them sleeps through a refresh, and stands further back at the next.
            late = data.draw(st.sampled_from(sorted(copies)))
            expected = known.query(sql)
            assert multiset(view.to_arrow()) == expected
            for kind in copies:
                if kind != late:
                    copies[kind].refresh()
                    assert held(urls[kind], view.schema.names) == expected, kind
        for kind, copy in copies.items():
            copy.refresh()
            assert held(urls[kind], view.schema.names) == expected, kind
            assert copy.verify(), kind


@settings(max_examples=examples(4))
@given(st.data())
def test_each_copy_may_have_a_restriction_of_its_own(targets: Targets, data: st.DataObject) -> None:
    known: Relations = data.draw(relations(most=2))
    with create_on(MemoryStorage(), limits=TINY) as store:
        known.create(store)
        name = sorted(known.keys)[0]
        urls = targets.urls()
        view = store.view(name)
        restrictions = dict(
            zip(urls, ("x = 1", "y IS NULL", "x < 2 OR s = 'a'", "d > 0", "NOT x = y", "x = 0"), strict=True)
        )
        copies = {kind: view.replicate(url, name=kind, where=restrictions[kind]) for kind, url in urls.items()}
        perform(store, known, data.draw(transactions(known)))
        for kind, copy in copies.items():
            copy.refresh()
            expected = known.query(f"SELECT * FROM {name} WHERE {restrictions[kind]}")
            assert held(urls[kind], view.schema.names) == expected, kind
