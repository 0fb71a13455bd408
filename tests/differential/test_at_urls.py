"""What a differential leaves in an object store: states over two nights, saved change sets, rows, reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.command import Command
from tests.storage import s3

import strandline as sl
from strandline.errors import FormatError, InputError, NotFound
from strandline.storage import files_below, open_version
from strandline.storage.object_file import put_object


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with s3.bucket() as name:
        yield f"s3://{name}"


def night(number: int) -> pa.Table:
    ids = list(range(number, 3000 + number))
    return pa.table({"id": ids, "v": [n if n % 50 else n + number for n in ids]})


def test_a_state_in_an_object_store_answers_over_two_nights_and_keeps_one_generation(place: str) -> None:
    state = f"{place}/orders.state"
    assert sl.diff(None, night(0), key="id", state=state).summary().inserted == 3000
    for number in (1, 2):
        found = sl.diff(None, night(number), key="id", state=state).summary()
        expected = sl.diff(night(number - 1), night(number), key="id", algorithm="hash").summary()
        assert replace(found, columns=None) == replace(expected, columns=None)
        names = files_below(state)
        assert len({name.partition("/")[0] for name in names}) == 2, names
    put_object(f"{place}/other/x", b"x")
    with pytest.raises(InputError, match="not a folder of saved signatures"):
        sl.diff(None, night(0), key="id", save_state=f"{place}/other")
    segment = next(name for name in files_below(state) if name.endswith(".arrow"))
    put_object(f"{state}/{segment}", b"damaged")
    with pytest.raises(FormatError, match="checksum differs"):
        sl.diff(None, night(3), key="id", state=state)


def test_a_change_set_is_saved_loaded_replaced_and_checked_under_a_url(place: str) -> None:
    changes, later = sl.diff(night(0), night(1), key="id"), sl.diff(night(1), night(2), key="id")
    url = f"{place}/set.changes"
    changes.save(url)
    again = sl.Changes.load(url)
    assert again.to_arrow().equals(changes.to_arrow())
    assert again.apply(night(0)).to_arrow().sort_by("id").equals(night(1))
    assert again.compose(sl.diff(night(1), night(0), key="id")).summary().changed == 0
    later.save(url)
    assert len(files_below(url)) == 2
    assert sl.Changes.load(url).to_arrow().equals(later.to_arrow())
    part = next(name for name in files_below(url) if name.startswith("part-"))
    put_object(f"{url}/{part}", b"damaged")
    with pytest.raises(FormatError, match="checksum differs"):
        sl.Changes.load(url)
    with pytest.raises(FormatError, match="it has no manifest"):
        sl.Changes.load(f"{place}/nothing.changes")
    put_object(f"{place}/taken/x", b"x")
    with pytest.raises(InputError, match="in the way"):
        changes.save(f"{place}/taken")


def test_rows_after_changes_are_saved_under_a_url(place: str) -> None:
    applied = sl.diff(night(0), night(1), key="id").apply(night(0))
    for url in (f"{place}/after.parquet", f"{place}/after"):
        applied.save(url)
        assert not sl.diff(url, night(1), key="id").summary().changed
        with pytest.raises(InputError, match="there already"):
            applied.save(url)


def test_a_command_reads_and_writes_urls(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(capsys)
    for number in (0, 1):
        pq.write_table(night(number), tmp_path / f"{number}.parquet")
        put_object(f"{place}/nights/{number}.parquet", (tmp_path / f"{number}.parquet").read_bytes())
    sides = [f"{place}/nights/0.parquet", f"{place}/nights/1.parquet"]
    outs = [f"{place}/outs/changes.{kind}" for kind in ("csv", "parquet", "jsonl", "sql", "changes")]
    for out in outs:
        ran = command("diff", *sides, "--key", "id", "--out", out, "--html", f"{place}/outs/report.html")
        assert ran.code == 1, ran.err
    names = files_below(f"{place}/outs")
    assert {"changes.csv", "changes.parquet", "changes.jsonl", "changes.sql", "report.html"} <= {*names}
    with open_version(f"{place}/outs/report.html")[0] as page:
        assert page.read(15).lower() == b"<!doctype html>"
    ran = command("diff", *sides, "--key", "id", "--out", "s3://no-such-bucket/x.csv")
    assert ran.code == 2
    assert "no such bucket" in ran.err
    with pytest.raises(NotFound):
        sl.diff(f"{place}/nights/7.parquet", sides[0], key="id")
