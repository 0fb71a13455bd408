"""The paper's equations and conditions, with its own numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.difference_table_choice import (
    choose,
    communication_limit,
    delay_limit,
    delay_maintained,
    delay_scanned,
    messages_regenerated,
)

from strandline.views.catalog import DEFERRED, EAGER
from strandline.views.maintenance import Load, Prices, messages, messages_counted, messages_keyed

PAPER = Load(rows=10_000, updates=1_000, refreshes=1, qualified=0.1, keyed=True)
CHEAP = Prices(relevance=1.0, maintain=5.0, scan=1.0, message=1.0)


def test_equations_1_and_1a_give_the_papers_messages() -> None:
    assert round(messages_counted(PAPER), 2) == 190.33
    assert round(messages_keyed(PAPER), 2) == 180.81
    assert messages_regenerated(PAPER) == 1_000


def test_messages_grow_as_2q_per_update_at_first_and_end_at_2qn() -> None:
    few, many = replace(PAPER, updates=1), replace(PAPER, updates=1e7)
    assert messages_counted(few) == pytest.approx(2 * 0.1, rel=1e-4)
    assert messages_counted(many) == pytest.approx(2 * 0.1 * 10_000)


@pytest.mark.parametrize(("qualified", "limit"), [(0.1, 0.7472), (0.25, 0.8473), (0.5, 1.0986), (0.9, 2.3979)])
def test_a_keyed_view_pays_until_ln_2_minus_q_over_1_minus_q(qualified: float, limit: float) -> None:
    assert round(communication_limit(qualified, keyed=True), 4) == limit


def test_a_counted_view_pays_until_ln_2() -> None:
    assert communication_limit(0.1, keyed=False) == pytest.approx(0.693147, abs=5e-7)
    assert communication_limit(1.0, keyed=True) == math.inf


@given(st.floats(0.01, 0.99), st.booleans(), st.floats(0.01, 5.0))
def test_below_the_limit_exactly_the_difference_is_smaller_than_the_view(q: float, keyed: bool, per_row: float) -> None:
    load = Load(1_000, per_row * 1_000, 1, q, keyed)
    limit = communication_limit(q, keyed=keyed)
    if not math.isclose(per_row, limit, rel_tol=1e-9):
        assert (messages(load) < messages_regenerated(load)) == (load.per_row < limit)


def test_equation_2_counts_both_images_of_each_update() -> None:
    assert delay_maintained(PAPER, CHEAP) == 2 * (1 + 0.1 * 5) * 1_000
    assert delay_scanned(PAPER, CHEAP) == 10_000
    assert delay_limit(0.1, CHEAP) == pytest.approx(1 / 3)


@given(st.floats(0.01, 1.0), st.floats(0.01, 2.0))
def test_below_the_limit_exactly_maintaining_delays_less_than_a_scan(q: float, per_row: float) -> None:
    load = Load(1_000, per_row * 1_000, 1, q, True)
    if not math.isclose(per_row, delay_limit(q, CHEAP), rel_tol=1e-9):
        assert (delay_maintained(load, CHEAP) < delay_scanned(load, CHEAP)) == (load.per_row < delay_limit(q, CHEAP))


def test_both_conditions_choose_eager_and_neither_chooses_deferred() -> None:
    assert choose(PAPER, CHEAP).maintain == EAGER
    flood = choose(replace(PAPER, updates=20_000), CHEAP)
    assert flood.maintain == DEFERRED
    assert str(flood) == (
        "deferred: 2 updates of a row between refreshes are not below ln((2 − q)/(1 − q)) = 0.747, so the difference "
        "is no smaller than the view; they are not below Cs/(2Cr + 2qCm) = 0.333, so maintaining delays no less than "
        "reading the base"
    )


def test_when_one_condition_holds_communication_is_weighed_against_delay() -> None:
    between = replace(PAPER, updates=5_000)
    dear, free = replace(CHEAP, message=100.0), replace(CHEAP, message=0.0)
    assert choose(between, dear).maintain == EAGER
    assert choose(between, free).maintain == DEFERRED
    assert "messages and delay together take" in choose(between, free).reasons[-1]
    assert choose(between, free, prompt=True).maintain == EAGER


def test_empty_tables_and_views_that_nobody_refreshes_have_an_answer_too() -> None:
    assert choose(Load(0, 0, 1, 0.0, True), CHEAP).maintain == EAGER
    assert choose(Load(1_000, 5, 0, 0.5, False), CHEAP).maintain == DEFERRED
    assert messages(Load(0, 0, 0, 0.5, False)) == 0
