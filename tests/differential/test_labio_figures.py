"""Small versions of the paper's figures 11 to 13: the shapes, not the times."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.labio_generator import displaced_order, generate
from benchmarks.window import RECORD_BYTES, extra_messages

RECORDS = 20_000
ROOM = 2_000 * RECORD_BYTES


def test_displacement_keeps_every_record() -> None:
    order = displaced_order(1_000, 100, np.random.default_rng(1))
    assert sorted(order.tolist()) == list(range(1_000))
    assert order.tolist() != list(range(1_000))


def test_no_displacement_keeps_the_order() -> None:
    snapshots = generate(1_000, 0, updated_share=0.1)
    assert snapshots.distance == 0
    assert snapshots.updated == 100
    assert snapshots.new["key"].equals(snapshots.old["key"])


def test_figure_11_no_extra_messages_below_the_critical_distance_and_many_above() -> None:
    extra = {average: extra_messages(generate(RECORDS, average), ROOM) for average in (100, 500, 4_000, 8_000)}
    assert extra[100] == extra[500] == 0
    assert 0 < extra[4_000] < extra[8_000]
    assert extra[8_000] > RECORDS // 4


def test_figure_12_the_critical_distance_falls_with_the_number_of_records() -> None:
    def critical(records: int) -> float:
        for average in range(500, records, 250):
            snapshots = generate(records, average)
            if extra_messages(snapshots, ROOM):
                return snapshots.distance
        raise AssertionError("no extra messages at all")

    assert critical(15_000) > critical(20_000) > critical(40_000)


def test_figure_13_no_extra_messages_once_the_buffer_suffices() -> None:
    snapshots = generate(RECORDS, 4_000)
    extra = [extra_messages(snapshots, ROOM * quarters // 4) for quarters in (1, 2, 4, 8, 16)]
    assert extra == sorted(extra, reverse=True)
    assert extra[0] > RECORDS // 4
    assert extra[-1] == 0


@pytest.mark.parametrize("block_bytes", [4 * RECORD_BYTES, 10 * RECORD_BYTES, 40 * RECORD_BYTES])
def test_the_input_block_size_has_next_to_no_effect(block_bytes: int) -> None:
    snapshots = generate(RECORDS, 4_000)
    usual, other = extra_messages(snapshots, ROOM), extra_messages(snapshots, ROOM, block_bytes=block_bytes)
    assert usual > 0
    assert abs(other - usual) <= 0.1 * usual
    enough = 16 * ROOM
    assert extra_messages(snapshots, enough, block_bytes=block_bytes) == 0


@pytest.mark.parametrize("record_bytes", [78, 312])
def test_the_record_size_has_no_effect(record_bytes: int) -> None:
    """The same number of records in the buffers gives the same messages."""
    snapshots = generate(RECORDS, 4_000)
    usual = extra_messages(snapshots, ROOM, block_bytes=100 * RECORD_BYTES)
    room, block = 2_000 * record_bytes, 100 * record_bytes
    assert extra_messages(snapshots, room, block_bytes=block, record_bytes=record_bytes) == usual


def test_real_bodies_behave_as_their_stated_size() -> None:
    """156 bytes for real: the size comes from the batches."""
    assumed = extra_messages(generate(RECORDS, 4_000), ROOM, block_bytes=100 * RECORD_BYTES)
    real = generate(RECORDS, 4_000, body_bytes=148)
    assert extra_messages(real, ROOM, block_bytes=100 * RECORD_BYTES, record_bytes=None) == assumed


def test_the_default_displacement_does_not_give_the_distance_that_the_paper_prints() -> None:
    """Figure 10's 50,000 give 0.17; the 0.34 of figure 13 needs about 120,000."""
    assert round(generate(650_000, 50_000).distance, 2) == 0.17
    assert generate(650_000, 120_000).distance == pytest.approx(0.34, abs=0.01)


@pytest.mark.parametrize(("records", "critical"), [(325_000, 0.44), (487_500, 0.34), (650_000, 0.27)])
def test_the_first_extra_messages_appear_at_the_recomputed_distances(records: int, critical: float) -> None:
    below, above = generate(records, 85_000), generate(records, 95_000)
    assert below.distance < critical < above.distance
    assert extra_messages(below) == 0
    assert extra_messages(above) > records // 30
