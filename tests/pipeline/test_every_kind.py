"""A pipeline with every kind of source and copy: nights of churn, drift, a guard that trips, stops at random points.

Every table equals its source, and every copy a recomputation of what it copies, row by row, at the end and in between.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from tests.pages.faults import Crash
from tests.pipeline.shop import Rows, Shop, read_copy
from tests.relations.folder_catalog import FolderCatalog
from tests.replication.servers import Postgres

import strandline as sl
from strandline.errors import GuardTripped
from strandline.replication.definition import COUNT
from strandline.replication.targets.target import open_target

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
WIDE = SCHEMA.append(pa.field("note", pa.string()))
FILES = ("parquet", "folder", "lines", "arrow", "delta", "iceberg", "keyless")
BASES = ("ops", "server", "annotated_ops", "annotated_server", "analysis")
JOINED = "select p.id, p.name, s.price from parquet p join server s on p.name = s.name where s.price < 5"
NIGHTS = 5


def churn(rows: Rows, chance: random.Random, number: int) -> Rows:
    """The next night's rows: some go, some change, some come; names with nulls and odd characters among them."""
    kept = [row for row in rows if chance.random() > 0.1]
    kept = [{**row, "price": round(chance.random() * 9, 2)} if chance.random() < 0.2 else row for row in kept]
    names = ["plain", "ž’\"';--", "", None]
    fresh = [{"id": number * 1000 + n, "name": chance.choice(names), "price": float(n)} for n in range(5)]
    return [*kept, *fresh]


class World:
    """The sources of one shop, written as each kind writes them, and what they hold."""

    def __init__(self, shop: Shop, server: Postgres) -> None:
        self.shop = shop
        self.server = server
        self.chance = random.Random(7)
        self.night = 0
        self.rows: dict[str, Rows] = {name: [] for name in (*FILES, *BASES)}
        self.catalog = FolderCatalog(str(shop.folder / "ice"))
        self.iceberg: Any = self.catalog.create_table(("shop", "rows"), SCHEMA)
        create = "(id {} PRIMARY KEY, name text, price {})"
        for table in ("ops", "annotated_ops"):
            shop.sqlite("ops.db", f"CREATE TABLE {table} {create.format('INTEGER', 'REAL')}")
        for table in ("server", "annotated_server"):
            server.run(f"CREATE TABLE {table} {create.format('bigint', 'double precision')}")

    def pass_a_night(self) -> None:
        self.night += 1
        for name in self.rows:
            before, after = self.rows[name], churn(self.rows[name], self.chance, self.night)
            if name == "parquet" and self.night >= 3:
                after = [{"note": None, **row, **({"note": "n"} if row["id"] % 2 else {})} for row in after]
            self.rows[name] = after
            getattr(self, f"_{name}")(before, after)

    def _parquet(self, before: Rows, after: Rows) -> None:
        self.shop.extract(f"nightly/rows-{self.night}.parquet", after, WIDE if self.night >= 3 else SCHEMA)

    def _keyless(self, before: Rows, after: Rows) -> None:
        self.rows["keyless"] = after = [*after, *after[:2]]
        self.shop.extract("keyless.parquet", after, SCHEMA)

    def _folder(self, before: Rows, after: Rows) -> None:
        # CSV has no way to tell an empty text from a null one.
        self.rows["folder"] = after = [{**row, "name": row["name"] or "nameless"} for row in after]
        folder = self.shop.folder / "folder"
        folder.mkdir(exist_ok=True)
        for part in range(2):
            with (folder / f"part-{part}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(SCHEMA.names)
                writer.writerows(list(row.values()) for row in after[part::2])

    def _lines(self, before: Rows, after: Rows) -> None:
        (self.shop.folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in after), "utf-8")

    def _arrow(self, before: Rows, after: Rows) -> None:
        table = pa.Table.from_pylist(after, SCHEMA)
        with pa.ipc.new_file(str(self.shop.folder / "rows.arrow"), SCHEMA) as writer:
            writer.write_table(table)

    def _delta(self, before: Rows, after: Rows) -> None:
        write_deltalake(self.shop.folder / "delta", pa.Table.from_pylist(after, SCHEMA), mode="overwrite")

    def _iceberg(self, before: Rows, after: Rows) -> None:
        self.iceberg.overwrite(pa.Table.from_pylist(after, SCHEMA))

    def _ops(self, before: Rows, after: Rows) -> None:
        self._change(lambda sql: self.shop.sqlite("ops.db", sql), "ops", before, after)

    def _annotated_ops(self, before: Rows, after: Rows) -> None:
        self._change(lambda sql: self.shop.sqlite("ops.db", sql), "annotated_ops", before, after)

    def _server(self, before: Rows, after: Rows) -> None:
        self._change(self.server.run, "server", before, after)

    def _annotated_server(self, before: Rows, after: Rows) -> None:
        self._change(self.server.run, "annotated_server", before, after)

    def _analysis(self, before: Rows, after: Rows) -> None:
        with duckdb.connect(str(self.shop.folder / "analysis.duckdb")) as connection:
            connection.register("rows", pa.Table.from_pylist(after, SCHEMA))
            connection.execute("CREATE OR REPLACE TABLE analysis AS SELECT * FROM rows")

    def _change(self, run: Callable[[str], Any], table: str, before: Rows, after: Rows) -> None:
        """A night's work in a database: statements, as its users make them."""
        old, new = ({row["id"]: row for row in rows} for rows in (before, after))
        for id_ in old.keys() - new.keys():
            run(f"DELETE FROM {table} WHERE id = {id_}")
        for id_, row in new.items():
            name = "NULL" if row["name"] is None else "'" + row["name"].replace("'", "''") + "'"
            if id_ not in old:
                run(f"INSERT INTO {table} (id, name, price) VALUES ({id_}, {name}, {row['price']})")
            elif old[id_] != row:
                run(f"UPDATE {table} SET name = {name}, price = {row['price']} WHERE id = {id_}")

    def file(self) -> str:
        """The pipeline: every kind of source, and a copy of a table at every kind of site."""
        paths = {
            "parquet": "nightly/rows-*.parquet",
            "folder": "folder",
            "lines": "rows.jsonl",
            "arrow": "rows.arrow",
            "delta": "delta",
            "iceberg": "ice/rows",
            "keyless": "keyless.parquet",
            "ops": "sqlite:///ops.db#ops",
            "annotated_ops": "sqlite:///ops.db#annotated_ops",
            "analysis": "duckdb:///analysis.duckdb#analysis",
            "server": "${DATABASE}#" + self.server.schema + ".server",
            "annotated_server": "${DATABASE}#" + self.server.schema + ".annotated_server",
        }
        lines = ['store = "shop.store"']
        for name, path in paths.items():
            lines += [f"[sources.{name}]", f'from = "{path}"']
            lines += [] if name == "keyless" else ['key = "id"']
            lines += ['pick = "latest"'] if name == "parquet" else []
            lines += ['types = {id = "int64", name = "string", price = "double"}'] if name == "folder" else []
            lines += ['detect = "annotated"'] if name.startswith("annotated") else []
        lines += ["[sources.ops.guards]", 'deleted = "60%"']
        targets = {
            "duckdb": ("parquet", "duckdb:///copy.duckdb#copy"),
            "sqlite": ("keyless", "sqlite:///copy.db#copy"),
            "postgres": ("annotated_server", "${DATABASE}#" + self.server.schema + ".copy"),
            "parquet": ("delta", "parquet://copies/rows"),
            "to_delta": ("parquet", "delta://copies/delta"),
            "to_iceberg": ("iceberg", "iceberg://copies/iceberg"),
            "store": ("lines", "strandline:///other.store#copy"),
            "joined": ("joined", "duckdb:///views.duckdb#joined"),
            "joined_again": ("joined", "sqlite:///views.db#joined"),
        }
        lines += ["[views.joined]", f'sql = "{JOINED}"']
        for name, (of, to) in targets.items():
            lines += [f"[replicas.{name}]", f'of = "{of}"', f'to = "{to}"']
        return "\n".join(lines)

    def expect_all(self) -> None:
        """Tables equal their sources, copies what they copy."""
        for name, rows in self.rows.items():
            assert as_bag(self.shop.rows(name)) == as_bag(rows), name
        pipeline = self.shop.pipeline()
        for replica in pipeline.settings.replicas:
            url = pipeline.secrets.fill(replica.to, "reading a copy")
            with open_target(url, create=False) as copy:
                table = pa.Table.from_batches(copy.rows())
            held = [row for row in table.to_pylist() for _ in range(row.get(COUNT, 1))]
            users = [{k: v for k, v in row.items() if not k.startswith("_strandline")} for row in held]
            assert as_bag(users) == as_bag(self.recomputed(replica.of)), replica.name

    def recomputed(self, name: str) -> Rows:
        """A table's rows, or a view's by its query over the tables."""
        if name != "joined":
            return self.shop.rows(name)
        with sl.open(self.shop.folder / "shop.store") as store:
            rows: Rows = store.query(JOINED).to_pylist()
            return rows


def as_bag(rows: Rows) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.fixture
def world(shop: Shop, postgres: Postgres) -> World:
    shop.environment = {"DATABASE": postgres.url}
    made = World(shop, postgres)
    shop.write(made.file())
    return made


def test_every_kind_of_source_and_copy_through_nights_of_churn_stops_drift_and_a_guard(world: World) -> None:
    shop, chance = world.shop, random.Random(11)
    for night in range(1, NIGHTS + 1):
        world.pass_a_night()
        left = chance.randint(3, 40)

        def stop(point: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash

        try:
            shop.run(stop)
        except Crash:
            shop.run()
        assert shop.pipeline().history(1)[0]["behind"] == {}
        if night in (1, 3, NIGHTS):
            world.expect_all()
    shop.sqlite("ops.db", "DELETE FROM ops WHERE id > 1000")
    held = shop.rows("ops")
    with pytest.raises(GuardTripped, match="were deleted"):
        shop.run()
    assert shop.rows("ops") == held
    with sl.open(shop.folder / "shop.store") as store:
        assert store.check().ok
        assert len(store.snapshots()) == NIGHTS


def test_an_annotated_base_sends_what_changed_and_nothing_else(world: World) -> None:
    world.pass_a_night()
    first = world.shop.run()
    assert "read whole" in first.sources["annotated_ops"].why
    world.shop.sqlite("ops.db", "UPDATE annotated_ops SET price = 77 WHERE id = 1001")
    world.server.run("DELETE FROM annotated_server WHERE id = 1002")
    second = world.shop.run()
    for name in ("annotated_ops", "annotated_server"):
        assert (second.sources[name].how, second.sources[name].counts.rows) == ("annotated", 1)
    assert second.step is not None
    third = world.shop.run()
    assert third.step is None


def test_an_annotated_base_restored_from_a_backup_is_read_whole_again(world: World) -> None:
    world.pass_a_night()
    world.shop.run()
    backup = (world.shop.folder / "ops.db").read_bytes()
    world.shop.sqlite("ops.db", "UPDATE annotated_ops SET price = 77 WHERE id = 1001")
    world.shop.run()
    (world.shop.folder / "ops.db").write_bytes(backup)
    ran = world.shop.run()
    assert "different histories" in ran.sources["annotated_ops"].why
    world.expect_all()


def test_no_secret_is_written_anywhere(world: World) -> None:
    shop = world.shop
    shop.environment = {"DATABASE": world.server.url, "TOKEN": "hunter2secret"}
    toml = world.file() + '\n[replicas.away]\nof = "lines"\nto = "postgresql://me:${TOKEN}@127.0.0.1:1/none#t"\n'
    shop.write(toml)
    world.pass_a_night()
    ran = shop.run()
    assert "away" in ran.behind
    assert "hunter2secret" not in str(ran)
    for path in shop.folder.rglob("*"):
        if path.is_file():
            assert b"hunter2secret" not in path.read_bytes(), path


def test_a_copy_that_is_down_does_not_stop_the_others_and_catches_up(world: World) -> None:
    shop = world.shop
    world.pass_a_night()
    shop.run()
    blocked = shop.folder / "copy.duckdb"
    kept = blocked.read_bytes()
    blocked.write_bytes(b"this is no database")
    for _ in range(2):
        world.pass_a_night()
        ran = shop.run()
        assert set(ran.behind) == {"duckdb"}
        assert ran.last is not None
        assert ran.last.replicas["duckdb"]["step"] == 1
        assert ran.last.replicas["sqlite"]["step"] == ran.last.number
    blocked.write_bytes(kept)
    ran = shop.run()
    assert (ran.step, ran.behind) == (None, {})
    world.expect_all()


def test_a_copy_that_is_due_less_often_catches_up_by_one_net_difference(world: World) -> None:
    shop = world.shop
    shop.write(world.file().replace('of = "keyless"', 'of = "keyless"\nevery = "2h"'))
    world.pass_a_night()
    shop.run()
    world.pass_a_night()
    ran = shop.run()
    assert ran.last is not None
    assert ran.last.replicas["sqlite"]["step"] == 1
    shop.now += 2 * 3600
    ran = shop.run()
    assert ran.last is not None
    assert ran.last.replicas["sqlite"]["method"] == "difference"
    assert ran.last.replicas["sqlite"]["messages"] < 30
    world.expect_all()


def test_a_copy_reads_as_a_plain_table(world: World) -> None:
    world.pass_a_night()
    world.shop.run()
    url = f"duckdb:///{world.shop.folder}/copy.duckdb#copy"
    held = read_copy(url, "SELECT id FROM copy ORDER BY id")
    assert held == [(row["id"],) for row in sorted(world.rows["parquet"], key=lambda row: row["id"])]


def test_pq_reads_what_a_folder_copy_holds(world: World) -> None:
    world.pass_a_night()
    world.shop.run()
    files = list((world.shop.folder / "copies" / "rows").rglob("*.parquet"))
    assert sum(pq.read_metadata(path).num_rows for path in files) == len(world.rows["delta"])
