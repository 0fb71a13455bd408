"""Pipeline files: what is wrong in one is named, with its line and the nearest key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InputError, NotFound
from strandline.pipeline import duration, read_settings
from strandline.pipeline.places import Secrets
from strandline.pipeline.settings import Guards, PipelineSettings
from strandline.relations import open_relation, read_relation

GOOD = """
store = "shop.store"
snapshot = "night-{step:03}"

[sources.orders]
from = "extracts/orders-*.parquet"
pick = "latest"
key = ["shop", "id"]
[sources.orders.guards]
changed = "30%"
deleted = 0.1
required = ["price"]
unique = ["email", ["shop", "id"]]
fresh = "36h"
rows = 10

[sources.staff]
from = "sqlite:///ops.db#staff"
key = "id"
detect = "annotated"

[replicas.copy]
of = "orders"
to = "duckdb:///copy.duckdb#orders"
every = "daily"

[dumps.backups]
to = "backups"
schedule = "weekly=0, daily=1"
keep = "7 daily"
"""


def settings(folder: Path, text: str) -> PipelineSettings:
    path = folder / "shop.toml"
    path.write_text(text, "utf-8")
    return read_settings(path)


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    found = settings(tmp_path, GOOD)
    orders, staff = found.sources
    assert (found.name, found.store, found.folder) == ("shop", "shop.store", str(tmp_path))
    assert (orders.location, orders.key) == ("extracts/orders-*.parquet", ("shop", "id"))
    assert (staff.detect, found.replicas[0].every) == ("annotated", "daily")
    assert orders.guards == Guards(0.3, 0.1, ("price",), (("email",), ("shop", "id")), 129600.0, 10)


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("store =", "stor ="), 2, ["'stor'", "Did you mean 'store'?"]),
        (("[sources.orders]", "[source.orders]"), 5, ["no key 'source'", "Did you mean 'sources'?"]),
        (('from = "extracts', 'form = "extracts'), 6, ["no key 'form'", "Did you mean 'from'?"]),
        (("pick =", "pik ="), 7, ["'pik'", "[sources.orders]", "Did you mean 'pick'?"]),
        (('pick = "latest"', 'pick = "newest"'), 7, ["'newest'"]),
        (("changed =", "chnaged ="), 10, ["[sources.orders.guards]", "Did you mean 'changed'?"]),
        (('"30%"', '"a lot"'), 10, ["'a lot' is no share"]),
        (('"30%"', "10"), 10, ["10 is more than all rows", 'Write "10%" or 0.1', '"1000%" otherwise']),
        (('"30%"', '"10"'), 10, ["'10' is more than all rows", 'Write "10%" or 0.1']),
        (('"30%"', "true"), 10, ["True is no share"]),
        (("deleted = 0.1", 'deleted = "1000%"'), 11, ["'1000%' lets every row be deleted"]),
        (("deleted = 0.1", "deleted = 1"), 11, ["1 lets every row be deleted"]),
        (('fresh = "36h"', 'fresh = "a while"'), 14, ["no duration", "36h"]),
        (('detect = "annotated"', 'detect = "anotated"'), 20, ["Did you mean 'annotated'?"]),
        (('of = "orders"', 'of = "ordres"'), 23, ["no table or view 'ordres'", "Did you mean 'orders'?"]),
        (('every = "daily"', 'every = "dayly"'), 25, ["[replicas.copy]"]),
        (('schedule = "weekly=0, daily=1"', 'schedule = "weekly=1"'), 29, ["[dumps.backups]"]),
        (('keep = "7 daily"', 'keep = "some"'), 30, ["no count and period"]),
        (('key = "id"', "key = 7"), 19, ["name or a list of names"]),
        (('to = "backups"', ""), 27, ["'to' is missing", "[dumps.backups]"]),
        (("night-{step:03}", "night"), 3, ["same for every step"]),
        (("night-{step:03}", "night-{stop}"), 3, ["{step}"]),
        (("rows = 10", "rows = -1"), 15, ["no number of rows"]),
        (
            ("sqlite:///ops.db#staff", "staff.csv"),
            20,
            ["only a table of PostgreSQL or SQLite can be annotated, not staff"],
        ),
        (("store =", 'work = "./x/../shop.store"\nstore ='), 2, ["'work' and 'store' are one folder"]),
        (("store =", 'work = "${HERE}"\nstore ='), 2, ["'work' has no variables"]),
        (
            ("[dumps.backups]", '[replicas.two]\nof = "orders"\nto = "duckdb:///copy.duckdb#orders"\n[dumps.backups]'),
            29,
            ["that of the replica 'copy'"],
        ),
        (("duckdb:///copy.duckdb#orders", "strandline:///shop.store#staff"), 24, ["that of the table or view 'staff'"]),
        (("duckdb:///copy.duckdb#orders", "strandline:///./shop.store#staff"), 24, ["the table or view 'staff'"]),
        (('to = "backups"', 'to = "x/../shop.store"'), 28, ["'to' is the store itself"]),
        (('["shop", "id"]\n[', '["id", "id"]\n['), 8, ["'key' names a column twice"]),
        (("[sources.staff]", "[sources._strandline_x]"), 17, ["kept for what Strandline itself makes"]),
        (("[replicas.copy]", '[views._views]\nsql = "select 1"\n[replicas.copy]'), 22, ["'_views' is kept for"]),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, change: tuple[str, str], line: int, words: list[str]
) -> None:
    with pytest.raises(InputError) as told:
        settings(tmp_path, GOOD.replace(*change))
    assert f"line {line}" in str(told.value)
    assert all(word in str(told.value) for word in words), told.value


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'from' is missing"):
        settings(tmp_path, 'store = "s"\n[sources.orders]\nkey = "id"\n')
    with pytest.raises(InputError, match="'sources' is missing"):
        settings(tmp_path, 'store = "s"\n')


def test_text_that_is_no_toml_is_refused_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1"):
        settings(tmp_path, "store = \n")


def test_a_file_that_is_not_there_is_named_with_one_that_is_near(tmp_path: Path) -> None:
    settings(tmp_path, GOOD)
    with pytest.raises(NotFound, match=r"Did you mean shop\.toml"):
        read_settings(tmp_path / "shp.toml")


def test_two_sources_never_fill_one_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two sources fill the table 'orders'"):
        settings(tmp_path, GOOD.replace('detect = "annotated"', 'table = "orders"'))


@given(st.text(max_size=200))
def test_no_text_ends_in_anything_but_settings_or_a_plain_error(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.toml"
        path.write_text(text, "utf-8", errors="replace", newline="")
        with pytest.raises(InputError):
            read_settings(path)


def test_places_are_meant_from_the_files_folder() -> None:
    secrets = Secrets({"DATABASE": "postgresql://h/db", "FILE": "ops.db"}, "/shop")
    for text, place in {
        "orders.parquet": "/shop/orders.parquet",
        "/else/orders.parquet": "/else/orders.parquet",
        "sqlite:///${FILE}#t": "sqlite:////shop/ops.db#t",
        "duckdb:////else/x.duckdb#t": "duckdb:////else/x.duckdb#t",
        "${DATABASE}#s.t": "postgresql://h/db#s.t",
        "s3://bucket/x": "s3://bucket/x",
    }.items():
        assert secrets.fill(text, "opening") == place


def test_variables_are_filled_late_and_never_told() -> None:
    secrets = Secrets({"PASSWORD": "hunter2", "HOST": "db"})
    assert secrets.fill("postgresql://me:${PASSWORD}@${HOST}/shop", "opening") == "postgresql://me:hunter2@db/shop"
    assert secrets.scrub("login hunter2 failed at db") == "login ${PASSWORD} failed at db"
    with pytest.raises(InputError, match="NONE is not set"):
        secrets.fill("${NONE}", "opening")


def test_durations_are_read_as_people_write_them() -> None:
    assert [duration(text) for text in ("90s", "30m", "1.5h", "2d")] == [90.0, 1800.0, 5400.0, 172800.0]
    for wrong in ("", "5", "m", "1.2.3h", "0s", "5 parsecs"):
        with pytest.raises(InputError, match="is no duration"):
            duration(wrong)


def test_how_text_is_read_is_said_for_each_source(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_bytes("id\tname\n1\tJosé\n2\tNA\n".encode("cp1252"))
    lines = ['store = "s"', "[sources.old]", 'from = "old.csv"', 'key = "id"', 'delimiter = "\\t"']
    text = "\n".join([*lines, 'encoding = "cp1252"', 'nulls = "NA"'])
    (source,) = settings(tmp_path, text).sources
    read = read_relation(open_relation(tmp_path / "old.csv", options=source.reading.options))
    assert read.to_pylist() == [{"id": 1, "name": "José"}, {"id": 2, "name": None}]
    with pytest.raises(InputError, match=r"line 6: 'encoding': the encoding 'klingon' is not known"):
        settings(tmp_path, text.replace("cp1252", "klingon"))
