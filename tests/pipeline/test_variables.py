"""`${NAME}` in paths and URLs: filled in when something is opened; what is stored or shown has the name."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.pipeline.shop import Shop, orders

import strandline as sl
from strandline.errors import InputError
from strandline.pipeline.places import Secrets
from strandline.relations import parse_address

VALUE = "sekret77"
FILE = """
store = "${WHERE}/shop.store"
[sources.orders]
from = "${WHERE}/orders.parquet"
key = "id"
[sources.staff]
from = "sqlite:///${WHERE}/shop.db#staff"
key = "id"
detect = "annotated"
[replicas.lite]
of = "orders"
to = "sqlite:///${WHERE}/copies.db#lite"
[replicas.duck]
of = "orders"
to = "duckdb:///${WHERE}/copies.duckdb#duck"
[replicas.folder]
of = "orders"
to = "parquet://${WHERE}/folder"
[replicas.other]
of = "staff"
to = "strandline:///${WHERE}/other.store#staff"
[replicas.away]
of = "orders"
to = "postgresql://me:${WHERE}@127.0.0.1:1/none?application_name=${WHERE}#t"
[dumps.backups]
to = "${WHERE}/backups"
schedule = "daily=0"
"""


def told(folder: Path) -> list[str]:
    """The files below a folder whose bytes hold the value."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if VALUE.encode() in path.read_bytes()]


@pytest.fixture
def filled(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    (shop.folder / VALUE).mkdir()
    shop.extract(f"{VALUE}/orders.parquet", orders(1, 2))
    shop.sqlite(
        f"{VALUE}/shop.db", "create table staff (id integer primary key, n text)", "insert into staff values (1, 'a')"
    )
    shop.write(FILE)
    shop.environment = {"WHERE": VALUE}
    monkeypatch.chdir(shop.folder)
    return shop


def test_no_value_is_stored_or_shown(
    filled: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Command(capsys)
    plan = filled.pipeline().plan()
    first = filled.run()
    assert [name for name, one in first.step.replicas.items() if one["error"]] == ["away"] if first.step else False
    filled.sqlite(f"{VALUE}/shop.db", "insert into staff values (2, 'b')")
    second = filled.run()
    assert second.step is not None
    assert second.step.sources["staff"]["inserted"] == 1
    assert second.step.replicas["other"]["method"] == "difference"
    with sl.open(filled.folder / VALUE / "shop.store") as store:
        copies = {copy.name: copy.target for copy in store.copies()}
    assert copies["shop.lite"] == f"sqlite:///{filled.folder}/${{WHERE}}/copies.db#lite"
    assert copies["shop.folder"] == f"parquet://{filled.folder}/${{WHERE}}/folder"
    shown = [json.dumps(asdict(plan), default=str), json.dumps(second.to_json(), default=str), str(copies)]
    assert all("${WHERE}" in text and VALUE not in text for text in shown)
    assert told(filled.folder) == []
    monkeypatch.setenv("WHERE", VALUE)
    for command in (["replicas", f"{VALUE}/shop.store"], ["status", "shop.toml"], ["plan", "shop.toml"]):
        assert VALUE not in run(*command).out
    assert run("refresh", f"{VALUE}/shop.store", "shop.lite", "--verify").code == 0
    monkeypatch.delenv("WHERE")
    refused = run("refresh", f"{VALUE}/shop.store", "shop.lite")
    assert refused.code == 2
    assert "WHERE is not set" in refused.err


def test_a_copy_that_was_stored_with_the_value_gets_the_name_and_goes_on(filled: Shop) -> None:
    filled.write(FILE.replace("sqlite:///${WHERE}/copies", f"sqlite:///{VALUE}/copies"))
    filled.run()
    filled.write(FILE)
    filled.extract(f"{VALUE}/orders.parquet", orders(1, 2, 3))
    done = filled.run()
    assert done.step is not None
    assert done.step.replicas["lite"]["method"] == "difference"
    with sl.open(filled.folder / VALUE / "shop.store") as store:
        assert "${WHERE}" in store.copy("shop.lite").target


def test_python_and_commands_keep_the_name_too(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", VALUE)
    (shop.folder / VALUE).mkdir()
    with sl.create(shop.folder / "s") as store:
        table = store.create_table("t", [{"id": 1}], key="id")
        copy = store.view("t").replicate(f"sqlite:///{shop.folder}/${{WHERE}}/x.db#t")
        table.insert([{"id": 2}])
        assert store.copy("t").refresh().method == "difference"
        assert VALUE not in copy.target
        monkeypatch.delenv("WHERE")
        table.update(where="id > 0", set={"id": "id + 10"})  # a commit needs no variables of copies
        with pytest.raises(InputError, match="WHERE is not set"):
            store.copy("t").refresh()
    shop.sqlite("base.db", "create table b (id integer primary key)")
    monkeypatch.setenv("WHERE", VALUE)
    based = sl.base(f"sqlite:///{shop.folder}/base.db#b")
    based.replicate(f"sqlite:///{shop.folder}/${{WHERE}}/x.db#b")
    assert VALUE not in based.copies()[0].target
    based.replicate(f"sqlite:///{shop.folder}/{VALUE}/x.db#b")
    assert based.copy("b").refresh().position


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:${PW}@h/db#s.t", "postgresql://me:${PW}@h/db#s.t"),
        ("postgresql://me:plain${PW}@h/db#t", "postgresql://me@h/db#t"),
        (
            "postgresql://me@${HOST}:5/db?password=${PW}&x=${HOST}#t",
            "postgresql://me@${HOST}:5/db?password=${PW}&x=${HOST}#t",
        ),
        ("${WHOLE}#t", "${WHOLE}#t"),
        ("sqlite:///${HOST}.db#${HOST}", "sqlite:///${HOST}.db#${HOST}"),
    ],
)
def test_an_address_shows_names_and_hides_values(url: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PW": "hunter2", "HOST": "dbhost", "WHOLE": "postgresql://me:hunter2@dbhost/db"}.items():
        monkeypatch.setenv(name, value)
    address = parse_address(url)
    assert address.shown == shown
    assert "hunter2" not in repr(address) + address.place
    assert address.place == parse_address(os.path.expandvars(url)).shown
    assert "dbhost" not in address.scrub("can't reach dbhost") or "${HOST}" not in url


def test_a_whole_url_in_a_variable_has_an_absolute_path() -> None:
    secrets = Secrets({"URL": "sqlite:///x.db", "ABSOLUTE": "sqlite:////data/x.db"}, "/shop")
    assert secrets.address("${ABSOLUTE}#t", "opening").shown == "${ABSOLUTE}#t"
    with pytest.raises(InputError, match="its path is relative"):
        secrets.address("${URL}#t", "opening")
