"""The window algorithm: the fast one against the paper's pseudo code, message for message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.oracles.window import Record, Reference, reference_window
from tests.oracles.window_settlement import settle
from tests.values.properties import for_all

from strandline.differential.differential import window_raw
from strandline.differential.window import algorithm
from strandline.differential.window.algorithm import Window
from strandline.differential.window.options import Messages, WindowOptions, WindowReport, with_positions
from strandline.errors import InputError, SchemaError
from strandline.values.signatures.scheme import DEFAULT_SEED
from strandline.values.signatures.sl3 import second_seed, signature

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("a", pa.float64()), ("b", pa.list_(pa.int8()))])
KEY = ["k", "j"]
RECORD = 10

Row = tuple[Any, Any, Any, Any]


def batches(rows: Sequence[Row], cuts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    columns = [[row[k] for row in rows] for k in range(4)]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    edges = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    for start, stop in pairwise(edges):
        yield from table.slice(start, stop - start).to_batches()


def canonical(value: Any) -> Any:
    """Python's equality made the paper's: NaN equals NaN, as −0.0 equals 0.0 already."""
    return "NaN" if isinstance(value, float) and value != value else value


def records(rows: Sequence[Row], start: int = 0) -> list[Record]:
    return [
        Record(tuple(map(canonical, row[:2])), tuple(map(canonical, row[2:])), start + at, RECORD)
        for at, row in enumerate(rows)
    ]


def reference_messages(found: Reference) -> list[Any]:
    told: list[Any] = []
    for kind, old, new in found.messages:
        if kind == "update":
            assert old is not None
            assert new is not None
            told.append((kind, new.key, old.body, new.body))
        elif kind == "delete":
            assert old is not None
            told.append((kind, old.key, old.body, old.position))
        else:
            assert new is not None
            told.append((kind, new.key, new.body, new.position))
    return told


def told(messages: list[Messages]) -> list[Any]:
    found: list[Any] = []
    for part in messages:
        before, after = rows_of(part.before), rows_of(part.after)
        deletes = list(zip(rows_of(part.deletes), part.delete_positions.tolist(), strict=True))
        inserts = list(zip(rows_of(part.inserts), part.insert_positions.tolist(), strict=True))
        updates = list(zip(before, after, strict=True))
        for kind in part.order:
            if kind == 0:
                old, new = updates.pop(0)
                assert old[:2] == new[:2]
                found.append(("update", new[:2], old[2:], new[2:]))
            else:
                row, position = (deletes if kind == 1 else inserts).pop(0)
                found.append((("delete", "insert")[kind - 1], row[:2], row[2:], position))
        assert not updates
        assert not deletes
        assert not inserts
    return found


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    columns = [[canonical(value) for value in column.to_pylist()] for column in batch.columns]
    return list(zip(*columns, strict=True))


def run(old: Sequence[Row], new: Sequence[Row], options: WindowOptions, cuts: Sequence[int] = ()) -> Any:
    window = Window(SCHEMA, KEY, options)
    sent = list(window.messages(batches(old, cuts), batches(new, cuts)))
    return window.report(), sent


numbers = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")])
bodies = st.tuples(numbers, st.sampled_from([None, [], [1], [1, None]]))
keys = st.tuples(st.integers(0, 12) | st.none(), st.sampled_from(["", "x", None]))
files = st.lists(st.tuples(keys, bodies).map(lambda pair: (*pair[0], *pair[1])), max_size=40)
option_sets = st.builds(
    WindowOptions,
    aging_bytes=st.integers(1, 200),
    block_bytes=st.integers(1, 40),
    input_blocks=st.integers(1, 4),
    record_bytes=st.just(RECORD),
)


cut_lists = st.lists(st.integers(0, 40), max_size=4)


@for_all(examples=150, old=files, new=files, options=option_sets, stretch=st.integers(1, 30), cuts=cut_lists)
def test_the_fast_window_sends_the_papers_messages(
    old: list[Row], new: list[Row], options: WindowOptions, stretch: int, cuts: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algorithm, "_STRETCH_ROWS", stretch)
        report, sent = run(old, new, options, cuts)
    expected = reference_window(records(old), records(new), options)
    assert told(sent) == reference_messages(expected)
    assert report.messages == len(expected.messages)
    assert report.matched == len(expected.pairs)
    assert report.displacement == sum(abs(a.position - b.position) for a, b in expected.pairs)
    assert (report.old_rows, report.new_rows) == (len(old), len(new))


@for_all(examples=75, old=files, new=files, options=option_sets, stretch=st.integers(1, 30))
def test_colliding_hashes_of_keys_do_not_change_a_message(
    old: list[Row], new: list[Row], options: WindowOptions, stretch: int
) -> None:
    weak = {DEFAULT_SEED: 1, second_seed(DEFAULT_SEED): 3}

    def weak_signature(columns: Any, seed: int, engine: Any = "auto") -> Any:
        return signature(columns, seed, engine) & np.uint64(weak.get(seed, 2**64 - 1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algorithm, "_STRETCH_ROWS", stretch)
        patch.setattr(algorithm, "signature", weak_signature)
        _, sent = run(old, new, options)
    assert told(sent) == reference_messages(reference_window(records(old), records(new), options))


unique_files = st.dictionaries(keys, bodies, max_size=30).flatmap(
    lambda rows: st.permutations([(*key, *body) for key, body in rows.items()])
)


@for_all(examples=100, old=unique_files, new=unique_files, options=option_sets)
def test_after_settling_the_changes_are_net(old: list[Row], new: list[Row], options: WindowOptions) -> None:
    report, sent = run(old, new, options)
    settled = settle(*leftovers(sent), KEY)
    before = {row[:2]: row[2:] for row in rows_of(batch_of(old))}
    after = {row[:2]: row[2:] for row in rows_of(batch_of(new))}
    updates = {row[:2]: row[2:] for part in sent for row in rows_of(part.after)}
    updates |= {row[:2]: row[2:] for row in rows_of(settled.after)}
    assert updates == {key: body for key, body in after.items() if key in before and before[key] != body}
    assert {row[:2] for row in rows_of(settled.deletes)} == before.keys() - after.keys()
    inserts = {row[:2]: row[2:] for row in rows_of(settled.inserts)}
    assert inserts == {key: after[key] for key in after.keys() - before.keys()}
    assert report.matched + settled.useless_pairs == len(before.keys() & after.keys())
    places = {row[:2]: at for at, row in enumerate(rows_of(batch_of(old)))}
    everywhere = sum(abs(at - places[row[:2]]) for at, row in enumerate(rows_of(batch_of(new))) if row[:2] in places)
    assert report.displacement + settled.displacement == everywhere


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    found = list(batches(rows, ()))
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=SCHEMA)


def leftovers(sent: list[Messages]) -> tuple[pa.Table, pa.Table]:
    schema = with_positions(SCHEMA)
    deletes, inserts = zip(*(part.leftovers() for part in sent), strict=True) if sent else ((), ())
    return pa.Table.from_batches(deletes, schema), pa.Table.from_batches(inserts, schema)


def simple(keys: Sequence[int], body: float = 1.0) -> list[Row]:
    return [(key, "", body, None) for key in keys]


def test_a_shifted_record_matches_within_the_window() -> None:
    old, new = simple(range(20)), simple([*range(1, 20), 0])
    roomy = WindowOptions(aging_bytes=30, block_bytes=10, input_blocks=1, record_bytes=10)
    report, sent = run(old, new, roomy)
    assert (report.messages, report.matched) == (0, 20)
    assert sent == []


def test_a_record_that_moved_beyond_the_window_is_a_useless_pair() -> None:
    old, new = simple(range(20)), simple([*range(1, 10), *range(30, 40), *range(10, 20), 0])
    tight = WindowOptions(aging_bytes=20, block_bytes=10, input_blocks=1, record_bytes=10)
    report, sent = run(old, new, tight)
    assert report.evicted_old > 0
    settled = settle(*leftovers(sent), KEY)
    assert settled.useless_pairs > 0
    assert settled.updated == 0
    assert settled.deletes.num_rows == 0
    assert sorted(settled.inserts["k"].to_pylist()) == list(range(30, 40))


def test_the_oldest_record_is_displaced_first() -> None:
    options = WindowOptions(aging_bytes=30, block_bytes=10, input_blocks=2, record_bytes=10)
    report, sent = run(simple([5, 4, 3, 2, 1, 0]), [], options)
    assert [message[1][0] for message in told(sent)] == [5, 4, 3, 2, 1, 0]
    assert (report.evicted_old, report.left_old) == (3, 3)


def test_raw_messages_are_the_papers() -> None:
    old = [(1, "", 1.0, None), (2, "", 1.0, [1])]
    new = [(1, "", 2.0, [7]), (3, "", 1.0, [1])]
    _, sent = run(old, new, WindowOptions(record_bytes=10))
    assert [row for part in sent for row in part.raw(KEY).to_pylist()] == [
        {"_change": "update", "k": 1, "j": "", "a": 2.0, "b": [7]},
        {"_change": "delete", "k": 2, "j": "", "a": None, "b": None},
        {"_change": "insert", "k": 3, "j": "", "a": 1.0, "b": [1]},
    ]


def test_positions_count_on_from_the_start_of_a_slice() -> None:
    options = WindowOptions(record_bytes=10, old_start=100, new_start=90)
    report, sent = run(simple([1, 2, 3]), simple([3]), options)
    assert report.displacement == 12
    assert sent[0].delete_positions.tolist() == [100, 101]


def test_an_empty_side_gives_deletes_or_inserts_alone() -> None:
    report, _ = run(simple(range(5)), [], WindowOptions())
    assert (report.left_old, report.left_new, report.messages) == (5, 0, 5)
    report, _ = run([], simple(range(5)), WindowOptions())
    assert (report.left_old, report.left_new, report.messages) == (0, 5, 5)
    report, sent = run([], [], WindowOptions())
    assert (report.messages, report.distance, sent) == (0, 0.0, [])


def test_memory_is_the_buffers_whatever_the_length_of_the_file() -> None:
    """Half of the records move by 2,000 places, so that the aging buffers are in use all the time."""

    def peak(rows: int) -> WindowReport:
        place = np.arange(rows) + np.where(np.arange(rows) % 2, 2_000, 0)
        old = pa.table({"k": np.arange(rows), "v": np.arange(rows) * 0.5})
        new = old.take(pa.array(np.argsort(place, kind="stable")))
        options = WindowOptions(aging_bytes=64_000, block_bytes=1_600, input_blocks=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(algorithm, "_STRETCH_ROWS", 1_000)
            one, two = (iter(table.to_batches(5_000)) for table in (old, new))
            window = Window(old.schema, ["k"], options)
            for _ in window.messages(one, two):
                pass
            return window.report()

    short, long = peak(10_000), peak(100_000)
    assert short.messages == long.messages == 0
    assert long.peak_bytes <= 1.2 * short.peak_bytes
    records, nodes = 64_000, 64_000 // 16 * 48
    assert long.peak_bytes <= 2 * (1.5 * records + 2 * nodes + 3 * 16_000)


def test_a_key_that_is_not_there_is_refused() -> None:
    with pytest.raises(SchemaError, match="the key nope is not among k, j, a, b"):
        Window(SCHEMA, ["nope"])


def test_buffers_without_room_are_refused() -> None:
    with pytest.raises(InputError, match="must have room"):
        WindowOptions(aging_bytes=0)


def test_views_dictionaries_and_run_ends_come_back_as_plain_values() -> None:
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("view", pa.string_view()),
            ("views", pa.list_(pa.string_view())),
            ("list", pa.list_view(pa.int64())),
            ("runs", pa.run_end_encoded(pa.int32(), pa.int64())),
            ("code", pa.dictionary(pa.int8(), pa.string())),
        ]
    )

    def rows(keys: list[int], texts: list[str]) -> pa.Table:
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([len(keys)], pa.int32()), pa.array([7]))
        columns = [
            pa.array(keys),
            pa.array(texts, pa.string_view()),
            pa.array([[text] for text in texts], pa.list_(pa.string_view())),
            pa.array([[key] for key in keys], pa.list_view(pa.int64())),
            runs,
            pa.array(texts).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    old, new = rows([1, 2, 3], ["a", "b", "c"]), rows([3, 1, 4], ["c", "x", "d"])
    assert window_raw(old, new, "k").rows.sort_by("k").to_pylist() == [
        {"_change": "update", "k": 1, "view": "x", "views": ["x"], "list": [1], "runs": 7, "code": "x"},
        {"_change": "delete", "k": 2, "view": None, "views": None, "list": None, "runs": None, "code": None},
        {"_change": "insert", "k": 4, "view": "d", "views": ["d"], "list": [4], "runs": 7, "code": "d"},
    ]
