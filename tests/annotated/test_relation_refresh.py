"""The algorithm as kernels over ranges of addresses, inline and on Spark, against the sequential oracle."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.annotated.figures import BASE_AFTER, BASE_BEFORE, BASE_TIME, MESSAGES, SNAP_TIME, Person

from strandline.detect.annotated import paper
from strandline.detect.annotated.kernels import Carry, Entries, carried, pass_range, survey_range
from strandline.detect.annotated.marked import KEPT, Marked, Tail, marked_fix_up, marked_refresh
from strandline.detect.annotated.marked_kernels import Asked, MarkedPassed, Marks, marked_pass, marked_survey
from strandline.detect.annotated.paper import Entry, Sent
from strandline.detect.annotated.relation_refresh import Question, refresh_relation


def table_of(entries: list[Entry]) -> pa.Table:
    return pa.table(
        {
            "_strandline_address": pa.array([e.address for e in entries], pa.int64()),
            "_strandline_previous": pa.array([e.previous for e in entries], pa.int64()),
            "_strandline_time": pa.array([e.time for e in entries], pa.int64()),
            "name": pa.array([e.value.name for e in entries], pa.string()),
            "salary": pa.array([e.value.salary for e in entries], pa.int64()),
        }
    )


def messages_of(table: pa.Table) -> list[Sent]:
    return [Sent(row["_strandline_address"], row["_strandline_previous"], _value(row)) for row in table.to_pylist()]


def _value(row: dict[str, Any]) -> Any:
    if row["_strandline_address"] is None:
        return None
    return Person(row["name"], row["salary"]) if row["_strandline_valued"] else KEPT


def fixed_by(entries: list[Entry], fixed: pa.Table) -> list[Entry]:
    new = {row["_strandline_address"]: row for row in fixed.to_pylist()}
    return [
        Entry(e.address, new[e.address]["_strandline_previous"], new[e.address]["_strandline_time"], e.value)
        if e.address in new
        else e
        for e in entries
    ]


def test_figure_5_as_a_relation_gives_the_same_messages_and_annotations() -> None:
    question = Question(SNAP_TIME, BASE_TIME, "salary < 10")
    answer = refresh_relation(table_of(BASE_BEFORE), question, runner="inline")
    assert messages_of(answer.messages) == MESSAGES
    assert fixed_by(BASE_BEFORE, answer.fixed) == BASE_AFTER
    assert sorted(answer.fixed.column("_strandline_address").to_pylist()) == [2, 3, 5]


def random_base(seed: int, size: int) -> list[Entry]:
    """A base after a fix-up at 1 and another at 2, and random work after each."""
    chance = random.Random(seed)
    entries: list[Entry] = []
    for now in (1, 2, 3):
        by_address = {e.address: e for e in entries}
        for _ in range(size):
            address = chance.randint(1, 2 * size)
            value = Person(chance.choice("ab"), chance.randint(0, 20))
            here = by_address.get(address)
            kind = chance.random()
            if here is None:
                by_address[address] = Entry(address, None, None, value)
            elif kind < 0.4:
                by_address[address] = Entry(address, here.previous, None, value)
            elif kind < 0.7:
                del by_address[address]
        entries = [by_address[a] for a in sorted(by_address)]
        if now < 3:
            entries = paper.base_fix_up(entries, now).entries
    return entries


@given(st.integers(0, 10_000), st.lists(st.integers(1, 40), max_size=6), st.integers(0, 2), st.integers(0, 20))
def test_ranges_with_a_carry_give_what_one_pass_gives(seed: int, cuts: list[int], snap_time: int, limit: int) -> None:
    entries = random_base(seed, 20)
    expected = paper.fix_up_and_refresh(entries, snap_time, 3, lambda person: person.salary < limit)
    carry = Carry(0, 0, 0)
    fixed: list[Entry] = []
    messages: list[Sent] = []
    edges = [0, *sorted(cuts), 1000]
    for above, upto in pairwise(edges):
        inside = [e for e in entries if above < e.address <= upto]
        arrays = arrays_of(inside, limit)
        found = survey_range(arrays, snap_time, 3)
        passed = pass_range(arrays, carry, snap_time, 3) if inside else None
        for place, entry in enumerate(inside):
            assert passed is not None
            fixed.append(Entry(entry.address, int(passed.previous[place]), int(passed.time[place]), entry.value))
            if passed.sent[place]:
                messages.append(Sent(entry.address, int(passed.last_qual[place]), entry.value))
        carry = carried(carry, found)
    messages.append(Sent(None, carry.last_qual, None))
    assert (fixed, messages) == expected


def arrays_of(entries: list[Entry], limit: int) -> Entries:
    return Entries(
        address=np.array([e.address for e in entries], dtype=np.int64),
        previous=np.array([e.previous or 0 for e in entries], dtype=np.int64),
        time=np.array([e.time or 0 for e in entries], dtype=np.int64),
        new=np.array([e.previous is None for e in entries], dtype=bool),
        null=np.array([e.time is None for e in entries], dtype=bool),
        qualified=np.array([e.value.salary < limit for e in entries], dtype=bool),
    )


LIMITS = {0: 7, 3: 12}
"""Two snapshots by their bits: each wants salaries below so much."""


class MarkedBase:
    """A base with the four fields after random work, and fix-ups by the oracle between."""

    def __init__(self, seed: int, size: int, rounds: int = 3) -> None:
        chance = random.Random(seed)
        self.restrictions = {bit: _below(limit) for bit, limit in LIMITS.items()}
        self.entries: list[Marked] = []
        self.tail = Tail()
        for now in range(1, rounds + 1):
            self._work(chance, size)
            if now < rounds:
                bit = chance.choice([*LIMITS, None])
                self.entries, self.tail = marked_fix_up(self.entries, self.tail, now, self.restrictions, bit)

    def _work(self, chance: random.Random, size: int) -> None:
        by_address = {entry.address: entry for entry in self.entries}
        for _ in range(size):
            address = chance.randint(1, 2 * size)
            value = Person(chance.choice("ab"), chance.randint(0, 20))
            here, kind = by_address.get(address), chance.random()
            if here is None:
                by_address[address] = Marked(address, None, None, value)
            elif kind < 0.4:
                by_address[address] = replace(here, time=None, value=value)
            elif kind < 0.7:
                del by_address[address]
        self.entries = [by_address[address] for address in sorted(by_address)]

    def table(self) -> pa.Table:
        more = {
            "_strandline_gap": pa.array([e.gap for e in self.entries], pa.int64()),
            "_strandline_unheld": pa.array([e.unheld for e in self.entries], pa.int64()),
        }
        table = table_of([Entry(e.address, e.previous, e.time, e.value) for e in self.entries])
        return pa.table({**dict(zip(table.column_names, table.columns, strict=True)), **more})

    def expected(self, bit: int, snap_time: int, now: int) -> tuple[list[Marked], list[Sent], Tail]:
        fixed, tail = marked_fix_up(self.entries, self.tail, now, self.restrictions, bit)
        return fixed, marked_refresh(self.entries, fixed, tail, snap_time, (bit, self.restrictions[bit])), tail

    def fixed_by(self, fixed: pa.Table) -> list[Marked]:
        new = {row.pop("_strandline_address"): row for row in fixed.to_pylist()}
        return [_fixed(entry, new[entry.address]) if entry.address in new else entry for entry in self.entries]


def _below(limit: int) -> Callable[[Person], bool]:
    return lambda person: person.salary < limit


def _fixed(entry: Marked, row: dict[str, Any]) -> Marked:
    return replace(entry, **{name.removeprefix("_strandline_"): value for name, value in row.items()})


def marked_question(base: MarkedBase, bit: int, snap_time: int) -> Question:
    others = {other: f"salary < {limit}" for other, limit in LIMITS.items() if other != bit}
    return Question(
        snap_time,
        3,
        f"salary < {LIMITS[bit]}",
        ["name", "salary"],
        algorithm="marked",
        bit=bit,
        others=others,
        tail=base.tail,
    )


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 40), max_size=6),
    st.integers(0, 2),
    st.sampled_from(sorted(LIMITS)),
)
def test_the_improved_algorithm_in_ranges_agrees_with_its_oracle(
    seed: int, cuts: list[int], snap_time: int, bit: int
) -> None:
    base = MarkedBase(seed, 20)
    carry = Carry(0, 0, 0)
    fixed: list[Marked] = []
    messages: list[Sent] = []
    for above, upto in pairwise([0, *sorted(cuts), 1000]):
        inside = [e for e in base.entries if above < e.address <= upto]
        entries, marks, asked = marked_arrays(inside, bit, snap_time)
        passed = marked_pass(entries, marks, carry, asked)
        for place, entry in enumerate(inside):
            fixed.append(_after(entry, passed, place))
            if passed.sent[place]:
                value = entry.value if passed.valued[place] else KEPT
                messages.append(Sent(entry.address, int(passed.last_qual[place]), value))
        carry = carried(carry, marked_survey(entries, marks, asked))
    expected = base.expected(bit, snap_time, 3)
    if carry.deletion or (expected[2].gap or 0) > snap_time:
        messages.append(Sent(None, carry.last_qual, None))
    assert (fixed, messages) == expected[:2]


def marked_arrays(inside: list[Marked], bit: int, snap_time: int) -> tuple[Entries, Marks, Asked]:
    entries = arrays_of([Entry(e.address, e.previous, e.time, e.value) for e in inside], LIMITS[bit])
    marks = Marks(
        gap=np.array([e.gap or 0 for e in inside], dtype=np.int64),
        unheld=np.array([e.unheld or 0 for e in inside], dtype=np.int64),
        unknown=np.array([e.unheld is None for e in inside], dtype=bool),
    )
    unqualified = {b: np.array([e.value.salary >= limit for e in inside], dtype=bool) for b, limit in LIMITS.items()}
    return entries, marks, Asked(snap_time, 3, bit, bit, unqualified)


def _after(entry: Marked, passed: MarkedPassed, place: int) -> Marked:
    return replace(
        entry,
        previous=int(passed.previous[place]),
        time=int(passed.time[place]),
        gap=int(passed.gap[place]) or None,
        unheld=None if passed.unknown[place] else int(passed.unheld[place]),
    )


def written(rows: pa.Table, folder: Path, size: int) -> None:
    for number, start in enumerate(range(0, max(len(rows), 1), size)):
        pq.write_table(rows.slice(start, size), folder / f"part-{number:03}.parquet")


def test_the_improved_algorithm_on_spark_agrees_message_for_message(spark: Any, tmp_path: Path) -> None:
    base = MarkedBase(5, 200)
    written(base.table(), tmp_path, 60)
    fixed, messages, tail = base.expected(0, 1, 3)
    answer = refresh_relation(str(tmp_path), marked_question(base, 0, 1), runner="spark", session=spark, ranges=4)
    assert messages_of(answer.messages) == messages
    assert any(message.value is KEPT for message in messages)
    assert base.fixed_by(answer.fixed) == fixed
    assert answer.tail == tail


def test_columns_of_a_relation_may_be_called_address_and_previous() -> None:
    rows = table_of(BASE_BEFORE).rename_columns(
        ["_strandline_address", "_strandline_previous", "_strandline_time", "address", "previous"]
    )
    answer = refresh_relation(rows, Question(SNAP_TIME, BASE_TIME, "previous < 10"), runner="inline")
    shown = answer.messages.rename_columns([*answer.messages.column_names[:3], "name", "salary"])
    assert messages_of(shown) == MESSAGES


@pytest.mark.parametrize("runner", ["inline", "spark"])
def test_files_in_ranges_agree_with_the_oracle_message_for_message(
    runner: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    session: Any = request.getfixturevalue("spark") if runner == "spark" else None
    entries = random_base(5, 200)
    rows = table_of(entries)
    written(rows, tmp_path, 60)
    expected = paper.fix_up_and_refresh(entries, 1, 3, lambda person: person.salary < 7 and person.name == "a")
    question = Question(1, 3, "salary < 7 and name = 'a'", ["name", "salary"])
    answer = refresh_relation(str(tmp_path), question, runner=runner, session=session, ranges=4)
    assert messages_of(answer.messages) == expected[1]
    assert fixed_by(entries, answer.fixed) == expected[0]
