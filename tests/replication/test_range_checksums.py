"""Checksums that PostgreSQL computes are those that we compute, for every type that such a copy holds."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.replication.conftest import place_of
from tests.replication.servers import Postgres, postgres

from strandline.changes.shape import COUNTED, KEYED
from strandline.replication.definition import COUNT, CopyDefinition, signed
from strandline.replication.message import Envelope, Position, load_message
from strandline.replication.targets.target import open_target

__all__ = ["postgres"]

UTC = dt.UTC
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 127],
    pa.int16(): [-(2**15), 0],
    pa.int32(): [-(2**31), 7],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.uint32(): [2**32 - 1, 0],
    pa.uint64(): [2**64 - 1, 0],
    pa.float32(): [0.1, -0.0, float("nan"), float("inf"), 1e-40],
    pa.float64(): [0.1, -0.0, float("nan"), float("-inf"), 5e-324, 1e300],
    pa.decimal128(38, 10): [Decimal("-0.0000000001"), Decimal("1234567890.5"), Decimal(0)],
    pa.decimal128(5, 0): [Decimal(-99999), Decimal(5)],
    pa.string(): ["", "a", "ä", "\U0001f30a", "1:1-", "it's"],
    pa.binary(): [b"", b"\x00\xff"],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    pa.time64("us"): [dt.time(0), dt.time(23, 59, 59, 999999)],
    pa.timestamp("us"): [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(9999, 1, 1)],
    pa.timestamp("ms", "Europe/Berlin"): [
        dt.datetime(1960, 1, 1, 0, 0, 0, 1000, UTC),
        dt.datetime(2024, 3, 31, tzinfo=UTC),
    ],
}


def columns() -> pa.Table:
    count = 1 + max(len(values) for values in VALUES.values())
    arrays = [
        pa.array([values[n] if n < len(values) else None for n in range(count)], kind)
        for kind, values in VALUES.items()
    ]
    return pa.table([pa.array(range(count)), *arrays], names=["id", *(f"c{place}" for place in range(len(arrays)))])


@pytest.mark.parametrize("form", [KEYED, COUNTED])
def test_both_sides_compute_the_same_for_every_type(tmp_path: Path, postgres: Postgres, form: str) -> None:
    rows = columns()
    key = ("id",) if form == KEYED else ()
    definition = CopyDefinition(rows.schema, form, key, "here")
    with open_target(place_of("postgres", tmp_path, postgres).url) as replica:
        replica.create(definition)
        state = replica.claim()
        message = load_message(definition, Envelope(state.epoch, 1, definition.fingerprint), rows)
        replica.apply(replace(message, position=Position(1)))
        checksums = replica.checksums()
        assert checksums is not None
        stored = rows
        if form == COUNTED:
            stored = signed(definition, rows.append_column(COUNT, pa.array([1] * len(rows), pa.int64())))
        ranges, sums = checksums.of(stored)
        assert checksums.sums() == sums
        held = pa.Table.from_batches(checksums.rows(ranges[:1]), schema=definition.stored)
        assert len(held) == ranges.count(ranges[0])
        replica.drop()
