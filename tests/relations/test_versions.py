"""Two versions of one Delta or Iceberg table, tables that their own libraries opened, lists of files and datasets; and
text in other encodings."""

from __future__ import annotations

import datetime as dt
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.cli.command import Command
from tests.relations.folder_catalog import FolderCatalog

import strandline as sl
from strandline.errors import FormatError, InputError, NotFound
from strandline.relations import ReadOptions, open_relation, read_relation

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = [{"id": n, "name": f"row {n}"} for n in range(6)]


def some(first: int, last: int) -> pa.Table:
    return pa.Table.from_pylist(ROWS[first:last], SCHEMA)


class Versions:
    """A table of three versions, of 2, 4 and 6 rows; what each is called, and a time after each."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.path = str(folder / "t")
        self.names: list[int] = []
        self.times: list[dt.datetime] = []
        self.begun = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        catalog = FolderCatalog(str(folder))
        table = catalog.create_table(("db", "t"), SCHEMA) if kind == "iceberg" else None
        for place in range(3):
            rows = some(2 * place, 2 * place + 2)
            if table is None:
                write_deltalake(self.path, rows, mode="append")
                self.names.append(place)
            else:
                table.append(rows)
                self.names.append(table.current_snapshot().snapshot_id)
            time.sleep(0.005)  # both count milliseconds
            self.times.append(dt.datetime.now(dt.UTC))
            time.sleep(0.005)
        self.opened: Any = DeltaTable(self.path) if table is None else table


@pytest.fixture(params=["delta", "iceberg"])
def versions(request: pytest.FixtureRequest, tmp_path: Path) -> Versions:
    return Versions(request.param, tmp_path)


def inserted(found: sl.Changes) -> list[int]:
    assert (found.summary().updated, found.summary().deleted) == (0, 0)
    return sorted(found.to_arrow().column("id").to_pylist())


def test_two_versions_of_one_table_are_compared_by_number_and_by_time(versions: Versions, command: Command) -> None:
    path, names, times = versions.path, versions.names, versions.times
    assert inserted(sl.diff(path, path, key="id", old_version=names[0], new_version=names[1])) == [2, 3]
    found = sl.diff(path, path, key="id", old_version=times[0], new_version=times[1].isoformat())
    assert (inserted(found), found.run.warnings) == ([2, 3], ())
    ran = command("diff", path, "-k", "id", "--old-version", names[0], "--json")
    assert (ran.code, ran.json["inserted"], ran.json["unchanged"]) == (1, 4, 2)
    assert re.fullmatch(rf"{path} at (version|snapshot) {names[0]}", ran.json["source"])
    local = times[1].astimezone().replace(tzinfo=None).isoformat()
    told = command("diff", path, path, "-k", "id", "--old-version", local, "--json").json
    assert (told["inserted"], told["source"], told["target"]) == (2, f"{path} as of {local}", path)


def test_one_version_compared_with_itself_is_told(versions: Versions) -> None:
    name = versions.names[1]
    found = sl.diff(versions.path, versions.path, key="id", old_version=name, new_version=name)
    assert (len(found), found.run.warnings) == (0, (f"both sides are {versions.path}",))


def test_versions_that_are_not_there_are_told(versions: Versions, command: Command) -> None:
    with pytest.raises(NotFound, match="there is no"):
        sl.diff(versions.path, versions.path, key="id", old_version=999)
    with pytest.raises(NotFound, match="there was no"):
        sl.diff(versions.path, versions.path, key="id", old_version=versions.begun)
    assert "a time such as" in command("diff", versions.path, "-k", "id", "--old-version", "monday").err


def test_files_have_no_versions(tmp_path: Path) -> None:
    pq.write_table(some(0, 2), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="only Delta and Iceberg tables have versions"):
        sl.diff(tmp_path / "a.parquet", some(0, 2), key="id", old_version=1)


def test_tables_that_their_libraries_opened_are_read_as_they_are(versions: Versions) -> None:
    assert inserted(sl.diff(some(0, 2), versions.opened, key="id")) == [2, 3, 4, 5]


def test_a_delta_table_is_read_at_the_version_it_was_opened_at(tmp_path: Path) -> None:
    made = Versions("delta", tmp_path)
    found = sl.diff(DeltaTable(made.path, version=0), DeltaTable(made.path, version=1), key="id")
    assert inserted(found) == [2, 3]
    assert (found.header.source or "").endswith("at version 0")


def test_a_list_of_files_is_one_relation(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    paths = [tmp_path / "a.parquet", tmp_path / "more" / "b.parquet", tmp_path / "c.parquet"]
    for place, path in enumerate(paths):
        pq.write_table(some(2 * place, 2 * place + 2), path)
    assert inserted(sl.diff([paths[0]], [*paths[:1], str(tmp_path / "more"), paths[2]], key="id")) == [2, 3, 4, 5]
    with pytest.raises(NotFound, match="no such file"):
        sl.diff(some(0, 2), [paths[0], tmp_path / "none.parquet"], key="id")
    (tmp_path / "d.csv").write_text("id,name\n7,x\n")
    with pytest.raises(FormatError, match="mixes formats"):
        sl.diff(some(0, 2), [paths[0], tmp_path / "d.csv"], key="id")
    with pytest.raises(InputError, match="Name it alone"):
        sl.diff(some(0, 2), [paths[0], "sqlite:///a.db#t"], key="id")


def test_a_dataset_and_a_scanner_are_read(tmp_path: Path) -> None:
    pq.write_to_dataset(some(0, 6), tmp_path / "data", partition_cols=["name"])
    whole = ds.dataset(tmp_path / "data", partitioning="hive")
    assert len(sl.diff(some(0, 6), whole, key="id")) == 0
    assert inserted(sl.diff(some(0, 2), whole.scanner(filter=ds.field("id") < 4), key="id")) == [2, 3]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8", "utf8"])
def test_text_in_other_encodings_is_read(encoding: str, tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.csv").write_text("id,näme\n1,Müller\n2,\n", encoding=encoding)
    read = read_relation(open_relation(tmp_path / "a.csv", options=ReadOptions(encoding=encoding)))
    assert read.to_pylist() == [{"id": 1, "näme": "Müller"}, {"id": 2, "näme": ""}]
    assert command("diff", "a.csv", "a.csv", "-k", "id", "--encoding", encoding).code == 0


def test_a_wrong_encoding_is_told_with_what_to_say(tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.csv").write_bytes("id,name\n1,Müller\n".encode("latin-1"))
    assert "--encoding latin-1" in command("diff", "a.csv", "a.csv", "-k", "id").err
    assert "is not known" in command("diff", "a.csv", "a.csv", "-k", "id", "--encoding", "klingon").err


def test_texts_that_mean_null_are_said_on_the_command_line(tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.csv").write_text("id,dep_delay\n1,NA\n2,5\n3,-\n")
    (tmp_path / "b.jsonl").write_text('{"id": 1, "dep_delay": null}\n{"id": 2, "dep_delay": 5}\n{"id": 3}\n')
    ran = command("diff", "a.csv", "b.jsonl", "-k", "id", "--nulls", "NA", "--nulls", "-", "--json")
    assert (ran.code, ran.json["unchanged"]) == (0, 3)
    command("create", "shop")
    assert command("load", "shop", "flights", "a.csv", "--nulls", "NA", "--nulls", "-", "--json").code == 0
