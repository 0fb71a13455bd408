"""The algorithm as kernels over ranges of addresses, inline and on Spark, against the sequential oracle."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.annotated.figures import BASE_AFTER, BASE_BEFORE, BASE_TIME, MESSAGES, SNAP_TIME, Person

from strandline.detect.annotated import paper
from strandline.detect.annotated.kernels import Carry, Entries, carried, pass_range, survey_range
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
    return [
        Sent(row["address"], row["previous"], None if row["address"] is None else Person(row["name"], row["salary"]))
        for row in table.to_pylist()
    ]


def fixed_by(entries: list[Entry], fixed: pa.Table) -> list[Entry]:
    new = {row["address"]: row for row in fixed.to_pylist()}
    return [
        Entry(e.address, new[e.address]["previous"], new[e.address]["time"], e.value) if e.address in new else e
        for e in entries
    ]


def test_figure_5_as_a_relation_gives_the_same_messages_and_annotations() -> None:
    question = Question(SNAP_TIME, BASE_TIME, "salary < 10")
    answer = refresh_relation(table_of(BASE_BEFORE), question, runner="inline")
    assert messages_of(answer.messages) == MESSAGES
    assert fixed_by(BASE_BEFORE, answer.fixed) == BASE_AFTER
    assert sorted(answer.fixed.column("address").to_pylist()) == [2, 3, 5]


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
    import numpy as np

    return Entries(
        address=np.array([e.address for e in entries], dtype=np.int64),
        previous=np.array([e.previous or 0 for e in entries], dtype=np.int64),
        time=np.array([e.time or 0 for e in entries], dtype=np.int64),
        new=np.array([e.previous is None for e in entries], dtype=bool),
        null=np.array([e.time is None for e in entries], dtype=bool),
        qualified=np.array([e.value.salary < limit for e in entries], dtype=bool),
    )


@pytest.mark.parametrize("runner", ["inline", "spark"])
def test_files_in_ranges_agree_with_the_oracle_message_for_message(
    runner: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    session: Any = request.getfixturevalue("spark") if runner == "spark" else None
    entries = random_base(5, 400)
    rows = table_of(entries)
    for number, start in enumerate(range(0, len(rows), 60)):
        pq.write_table(rows.slice(start, 60), tmp_path / f"part-{number:02}.parquet")
    expected = paper.fix_up_and_refresh(entries, 1, 3, lambda person: person.salary < 7 and person.name == "a")
    question = Question(1, 3, "salary < 7 and name = 'a'", ["name", "salary"])
    answer = refresh_relation(str(tmp_path), question, runner=runner, session=session, ranges=4)
    assert messages_of(answer.messages) == expected[1]
    assert fixed_by(entries, answer.fixed) == expected[0]
