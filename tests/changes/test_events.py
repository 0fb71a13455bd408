"""Logs of events collapse to the change set between their first and their last state, or are refused."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import strategies as st
from tests.cli.command import Command
from tests.values.properties import for_all

import strandline as sl
from strandline.changes import difference
from strandline.errors import ChangesError, FormatError, InputError, KeysError
from strandline.report.layouts import LAYOUTS, cdf, debezium, lay_out

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string())])
State = dict[int, tuple[float | None, str]]
_VALUES = st.tuples(st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5]), st.sampled_from(["", "a"]))
_STATE = st.dictionaries(st.integers(1, 4), _VALUES, max_size=4)


def table(state: State) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "v": v, "s": s} for i, (v, s) in state.items()], SCHEMA)


def row(state: State, key: int) -> dict[str, Any] | None:
    return {"id": key, "v": state[key][0], "s": state[key][1]} if key in state else None


def messages(states: list[State]) -> list[dict[str, Any]]:
    """What Debezium tells of the way from state to state."""
    told = []
    for old, new in itertools.pairwise(states):
        for key in sorted({*old, *new}):
            before, after = row(old, key), row(new, key)
            if repr(before) != repr(after):
                told.append({"before": before, "after": after, "op": "cud"[(after is None) * 2 or before is not None]})
    return told


def rows_of(changes: sl.Changes) -> list[str]:
    return sorted(map(repr, changes.to_arrow().to_pylist()))


@for_all(60, states=st.lists(_STATE, min_size=2, max_size=5))
def test_messages_lead_from_the_first_state_to_the_last(states: list[State]) -> None:
    net = sl.Changes.from_debezium(messages(states), key="id", schema=SCHEMA)
    expected = difference(table(states[0]), table(states[-1]), ["id"])
    assert rows_of(net) == sorted(map(repr, expected.rows.to_pylist()))


@for_all(40, states=st.lists(_STATE, min_size=2, max_size=4), data=st.data())
def test_a_row_that_lacks_a_column_or_has_one_more_is_refused(states: list[State], data: st.DataObject) -> None:
    told = messages(states)
    whole = [image for message in told for image in (message["before"], message["after"]) if image]
    if len(whole) < 2:
        return
    image = data.draw(st.sampled_from(whole))
    if data.draw(st.booleans()):
        image["more"] = 1
    else:
        del image[data.draw(st.sampled_from(["v", "s"]))]
    for schema in (SCHEMA, None):
        with pytest.raises(FormatError, match="has other columns"):
            sl.Changes.from_debezium(told, key="id", schema=schema)


HELD: list[tuple[pa.DataType, list[Any]]] = [
    (pa.binary(), [b"", b"a\xff"]),
    (pa.decimal128(9, 2), [Decimal("1.10"), Decimal("-0.01")]),
    (pa.date32(), [1, -400_000]),
    (pa.timestamp("us"), [0, 1_700_000_000_000_001]),
    (pa.timestamp("ns", "UTC"), [1, 1_700_000_000_000_000_001]),
    (pa.time64("ns"), [1, 9 * 3600 * 10**9]),
    (pa.float64(), [0.1, float("nan"), float("-inf")]),
    (pa.bool_(), [True, False]),
    (pa.list_(pa.decimal128(9, 2)), [[], [Decimal("1.10"), None]]),
    (pa.struct([("a", pa.binary()), ("b", pa.date32())]), [{"a": b"x", "b": None}]),
    (pa.map_(pa.string(), pa.float64()), [[], [("k", float("inf"))]]),
]


@for_all(60, held=st.sampled_from(HELD), data=st.data())
def test_a_file_of_messages_is_read_again_in_the_types_of_the_schema(
    tmp_path_factory: pytest.TempPathFactory, held: tuple[pa.DataType, list[Any]], data: st.DataObject
) -> None:
    type_, values = held
    path = tmp_path_factory.getbasetemp() / "topic.jsonl"
    drawn = [data.draw(st.none() | st.sampled_from(values)) for _ in range(2)]
    raw = pa.int64() if pa.types.is_temporal(type_) and type_.bit_width == 64 else pa.int32()
    arrays = [pa.array([v], raw).cast(type_) if pa.types.is_temporal(type_) else pa.array([v], type_) for v in drawn]
    old, new = (pa.table({"id": pa.array([1], pa.int64()), "v": array}) for array in arrays)
    changes = sl.diff(old, new, key="id", runner="inline")
    changes.write(path, layout="debezium")
    again = sl.Changes.from_debezium(path, key="id", schema=changes.schema)
    assert rows_of(again) == rows_of(changes)


@for_all(40, states=st.tuples(_STATE, _STATE))
def test_both_layouts_tell_the_set_again(states: tuple[State, State]) -> None:
    changes = sl.diff(table(states[0]), table(states[1]), key="id", runner="inline")
    again = sl.Changes.from_debezium(debezium(changes).to_pylist(), key="id", schema=SCHEMA)
    assert rows_of(again) == rows_of(changes)
    feed = cdf(changes)
    assert feed.schema.names == ["id", "v", "s", "_change_type", "_commit_version", "_commit_timestamp"]
    kinds, counts = feed.column("_change_type").to_pylist(), changes.summary()
    assert kinds.count("insert") == counts.inserted
    assert kinds.count("update_preimage") == kinds.count("update_postimage") == counts.updated
    keys = feed.column("id").to_pylist()
    for place, kind in enumerate(kinds):
        if kind == "update_preimage":
            assert (kinds[place + 1], keys[place + 1]) == ("update_postimage", keys[place])


def test_a_value_that_the_schema_would_cut_off_is_refused() -> None:
    message = {"before": None, "after": {"id": 1, "v": 1.5}, "op": "c"}
    with pytest.raises(FormatError, match=r"1\.5 is more than int64 can hold"):
        sl.Changes.from_debezium([message], key="id", schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]))


def test_layouts_need_a_key_and_before_images(tmp_path: Path) -> None:
    counted = sl.diff(table({1: (1.0, "")}), table({}), runner="inline")
    for name in ("cdf", "debezium"):
        assert name in LAYOUTS
        assert next(lay_out(counted.header, counted.tables(), name)).column_names[-1] == "_count"
        with pytest.raises(ChangesError, match="no key"):
            LAYOUTS[name](counted)


@pytest.fixture
def delta(tmp_path: Path) -> str:
    """Version 0 has three rows; then an update, a delete with an insert, and the insert undone."""
    path = str(tmp_path / "delta")
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, table({1: (1.0, "a"), 2: (2.0, "b"), 3: (3.0, "c")}), configuration=feed)
    opened = DeltaTable(path)
    opened.update(predicate="id = 1", updates={"v": "10.0"})
    opened.delete("id = 2")
    write_deltalake(path, table({4: (4.0, "d")}), mode="append")
    opened.update_incremental()
    opened.update(predicate="id = 1", updates={"v": "11.0"})
    opened.delete("id = 4")
    return path


@pytest.mark.parametrize(("since", "until"), [(0, None), (1, 3), (0, 1), (3, 4), (2, 2)])
def test_a_change_data_feed_tells_what_a_comparison_of_the_versions_finds(
    delta: str, since: int, until: int | None
) -> None:
    net = sl.Changes.from_cdf(delta, since, until, key="id")
    old, new = (DeltaTable(delta, version=version).to_pyarrow_table() for version in (since, until))
    assert rows_of(net) == sorted(map(repr, difference(old, new, ["id"]).rows.to_pylist()))
    assert rows_of(sl.Changes.from_cdf(DeltaTable(delta), since, until, key=["id"])) == rows_of(net)


def test_a_table_that_keeps_no_feed_tells_it_by_its_files(tmp_path: Path) -> None:
    plain = str(tmp_path / "plain")
    write_deltalake(plain, table({1: (1.0, "a"), 2: (2.0, "b"), 3: (3.0, "c")}))
    DeltaTable(plain).update(predicate="id = 1", updates={"v": "10.0"})
    DeltaTable(plain).delete("id = 2")
    net = sl.Changes.from_cdf(plain, 0, key="id").to_arrow().to_pylist()
    assert [(row["_change"], row["id"]) for row in net] == [("delete", 2), ("update", 1)]


def test_what_is_no_feed_is_told(delta: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="reading a change data feed"):
        sl.Changes.from_cdf(tmp_path, 0, key="id")
    with pytest.raises(InputError, match="from version 3 to 99 there is nothing"):
        sl.Changes.from_cdf(delta, 3, 99, key="id")
    with pytest.raises(KeysError):
        sl.Changes.from_cdf(delta, 0, key="nothing")


UNAVAILABLE = "__debezium_unavailable_value"
CREATE = {"before": None, "after": {"id": 1, "v": 1}, "op": "c"}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([CREATE, CREATE], "don't follow from each other"),
        ([CREATE, {"before": {"id": 1, "v": 2}, "after": None, "op": "d"}], "don't follow"),
        ([{"before": None, "after": {"id": 1, "v": 2}, "op": "u"}], "REPLICA IDENTITY FULL"),
        ([{"before": None, "after": None, "op": "t"}], "message 1 is a 't'"),
        ([{"id": 1}], "line 1 is no message of Debezium's"),
        (["{"], "line 1 is no JSON"),
        ([{"before": {"id": 1}, "after": {"id": 1, "v": 2}, "op": "u"}], r"message 1 \(u\) has other columns .*: v"),
        ([CREATE, {"before": {"id": 1}, "after": None, "op": "d"}], r"message 2 \(d\) has other columns .*: v"),
        ([CREATE, {"before": None, "after": {"id": 2, "v": 1, "w": 5}, "op": "c"}], r"message 2 \(c\) .*: w"),
        ([{"before": None, "after": {"id": 2**63, "v": 1}, "op": "c"}], "Give the schema"),
        ([], "there is no message"),
        *[
            (
                [CREATE, {"before": {"id": 2, "v": 1}, "after": {"id": 2, "v": absent}, "op": "u"}],
                r"message 2 .* value of v",
            )
            for text in (UNAVAILABLE, base64.b64encode(UNAVAILABLE.encode()).decode())
            for absent in (text, [text])
        ],
    ],
)
def test_messages_that_tell_no_story_of_rows_are_refused(told: list[Any], said: str) -> None:
    with pytest.raises(sl.StrandlineError, match=said):
        sl.Changes.from_debezium(told, key="id")


@pytest.mark.parametrize("held", [{"x": 1}, {"x": 1, "y": 2, "z": 3}, {}])
def test_objects_of_other_fields_than_the_schema_says_are_refused(held: dict[str, int]) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.struct([("x", pa.int64()), ("y", pa.int64())]))])
    told = [{"before": None, "after": {"id": 1, "v": held}, "op": "c"}]
    with pytest.raises(FormatError, match="an object has the fields"):
        sl.Changes.from_debezium(told, key="id", schema=schema)


def test_a_feed_is_read_in_the_columns_of_its_last_version(delta: str) -> None:
    write_deltalake(delta, pa.table({"id": ["x"], "v": [True]}), mode="overwrite", schema_mode="overwrite")
    net = sl.Changes.from_cdf(delta, 0, 3, key="id")
    old, new = (DeltaTable(delta, version=version).to_pyarrow_table() for version in (0, 3))
    assert rows_of(net) == sorted(map(repr, difference(old, new, ["id"]).rows.to_pylist()))
    assert sl.Changes.from_cdf(delta, 3, 3, key="id").schema == SCHEMA


def test_the_command_nets_feeds_and_topics(
    delta: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(capsys)
    enveloped = [{"schema": {}, "payload": CREATE}, None, {"payload": None}]
    Path("topic.jsonl").write_text("".join(json.dumps(one) + "\n" for one in enveloped))
    ran = command("net", "topic.jsonl", "-k", "id", "--format", "jsonl", "--layout", "debezium")
    assert (ran.code, json.loads(ran.out)) == (1, {**CREATE, "ts_ms": None})
    Path("topic.jsonl.gz").write_bytes(gzip.compress(Path("topic.jsonl").read_bytes()))
    assert command("net", "topic.jsonl.gz", "-k", "id", "--json").json["inserted"] == 1
    Path("topic.jsonl.gz").write_bytes(gzip.compress(Path("topic.jsonl").read_bytes())[:-9])
    assert "can't be unpacked" in command("net", "topic.jsonl.gz", "-k", "id").err
    assert "no such file" in command("net", "topic.json", "-k", "id").err
    with open("topic.jsonl") as piped:
        told = [sys.executable, "-m", "strandline.cli", "net", "-", "-k", "id", "--json"]
        ran_apart = subprocess.run(told, stdin=piped, capture_output=True, text=True)
    assert json.loads(ran_apart.stdout)["inserted"] == 1
    assert command("net", delta, "--since", "1", "-k", "id", "--json").json["updated"] == 1
    assert command("net", delta, "--since", "1", "-k", "id", "-o", "x.changes").code == 1
    assert sl.Changes.load("x.changes").summary().deleted == 1
    assert "say --since" in command("net", delta, "-k", "id").err.lower()
    assert command("net", "topic.jsonl", "-k", "id", "--since", "1").code == 2
