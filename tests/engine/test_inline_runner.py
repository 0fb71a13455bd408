"""The inline runner: outcomes in order, the user's error out, nothing left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from sample_kernels import always_fail, interrupt, refuse_odd, square

from strandline.engine import (
    INLINE_LIMIT,
    MASTER_VARIABLE,
    InlineRunner,
    Spool,
    choose_runner,
    parallel,
    runs_on_spark,
)
from strandline.errors import Cancelled, InputError, StrandlineError


def test_outcomes_come_in_the_order_of_the_items() -> None:
    with Spool() as spool:
        outcomes = InlineRunner().run(square, [{"n": n} for n in range(20)], spool, "squaring")
    assert [outcome.result["square"] for outcome in outcomes] == [n * n for n in range(20)]
    assert [outcome.item for outcome in outcomes] == list(range(20))
    assert sum(outcome.rows for outcome in outcomes) == 20


def test_no_items_give_no_outcomes() -> None:
    with Spool() as spool:
        assert InlineRunner().run(square, [], spool, "squaring") == []


def test_a_users_mistake_in_a_kernel_is_raised_as_itself() -> None:
    with Spool() as spool, pytest.raises(InputError) as caught:
        InlineRunner().run(refuse_odd, [{"n": 2}, {"n": 3}], spool, "halving")
    assert str(caught.value) == "halving: 3 is odd. Give even numbers."


def test_a_failing_machine_is_raised_as_it_is() -> None:
    with Spool() as spool, pytest.raises(OSError, match="the disk is gone"):
        InlineRunner().run(always_fail, [{}], spool, "failing")


def test_two_attempts_at_one_item_write_to_different_places() -> None:
    with Spool() as spool:
        first = InlineRunner().run(square, [{"n": 3}], spool, "squaring")[0]
        second = InlineRunner().run(square, [{"n": 3}], spool, "squaring")[0]
        assert first.result["path"] != second.result["path"]
        assert Path(first.result["path"]).read_text() == Path(second.result["path"]).read_text() == "9"


def test_a_closed_spool_leaves_nothing() -> None:
    with Spool() as spool:
        InlineRunner().run(square, [{"n": 3}], spool, "squaring")
        assert os.listdir(spool.path)
    assert not os.path.exists(spool.path)


def test_a_spool_goes_with_its_last_holder(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    path = spool.path
    del spool
    assert not os.path.exists(path)


def test_a_spool_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="STRANDLINE_SPOOL"):
        Spool(str(tmp_path / "file"))


def test_auto_takes_inline_for_small_input_and_where_no_spark_is_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MASTER_VARIABLE, raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert choose_runner("auto", INLINE_LIMIT - 1).name == "inline"
    assert choose_runner("inline", INLINE_LIMIT * 100).name == "inline"
    assert choose_runner("auto", INLINE_LIMIT).name == "inline"  # whether or not a session of this machine runs


def test_auto_takes_spark_for_large_input_where_a_master_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MASTER_VARIABLE, "local[1]")
    assert not runs_on_spark("auto", INLINE_LIMIT - 1)
    assert runs_on_spark("auto", INLINE_LIMIT)
    assert not runs_on_spark("inline", INLINE_LIMIT)


def test_an_unknown_runner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="auto, spark, inline"):
        choose_runner("dask", 0)


def test_errors_survive_the_trip_through_json() -> None:
    error = InputError("it is odd", doing="halving", hint="Give even numbers")
    back = StrandlineError.from_json(error.to_json())
    assert type(back) is InputError
    assert str(back) == str(error)


def test_an_unknown_error_name_becomes_the_base_class() -> None:
    assert type(StrandlineError.from_json({"error": "os.system", "why": "x"})) is StrandlineError


def test_ctrl_c_stops_the_work_as_cancelled(tmp_path: Path) -> None:
    items = [{"n": n, "ran": str(tmp_path / str(n))} for n in range(500)]
    with Spool() as spool, pytest.raises(Cancelled, match="squaring: stopped by the user"):
        InlineRunner(1).run(interrupt, items, spool, "squaring")
    assert len(list(tmp_path.iterdir())) < 500
    with pytest.raises(Cancelled, match="stopped by the user"):
        parallel(lambda n: signal.raise_signal(signal.SIGINT) if n % 100 == 0 else None, range(500))
