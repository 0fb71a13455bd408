"""The runner on a real Spark session: the same kernels, the same outcomes, quiet errors, retries, cancelling."""

from __future__ import annotations

import os
import signal
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sample_kernels import always_fail, fail_once, refuse_odd, set_aside, slow, square

from strandline.engine import (
    INLINE_LIMIT,
    MASTER_VARIABLE,
    InlineRunner,
    Spool,
    choose_runner,
    runs_on_spark,
    spark_at_hand,
    task_memory,
)
from strandline.engine.spark_runner import SparkRunner
from strandline.engine.spark_session import ask_worker, check_worker, prepare
from strandline.errors import Cancelled, EngineError, InputError


def test_spark_and_inline_give_the_same_outcomes(spark: Any) -> None:
    items = [{"n": n} for n in range(7)]
    with Spool() as spool:
        on_spark = SparkRunner(spark).run(square, items, spool, "squaring")
        inline = InlineRunner().run(square, items, spool, "squaring")
    assert [outcome.result["square"] for outcome in on_spark] == [outcome.result["square"] for outcome in inline]
    assert all(outcome.result["process"] != os.getpid() for outcome in on_spark)


def test_sessions_of_ours_talk_to_workers_by_unix_sockets(spark: Any) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"


def test_a_worker_s_garbage_is_no_longer_sought_among_what_it_has_imported(spark: Any) -> None:
    with Spool() as spool:
        SparkRunner(spark).run(square, [{"n": 1}], spool, "importing")
        outcomes = SparkRunner(spark).run(set_aside, [{}] * 2 * SparkRunner(spark).parallelism, spool, "counting")
    assert max(outcome.result["objects"] for outcome in outcomes) > 10_000


def test_a_users_mistake_on_a_worker_is_raised_as_itself(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with Spool() as spool, pytest.raises(InputError, match="3 is odd"):
        SparkRunner(spark).run(refuse_odd, [{"n": 2}, {"n": 3}], spool, "halving")
    assert capfd.readouterr().err == ""


def test_a_machine_that_fails_once_is_tried_again_and_the_winner_counts(spark: Any, tmp_path: Path) -> None:
    with Spool() as spool:
        outcome = SparkRunner(spark).run(fail_once, [{"mark": str(tmp_path / "mark")}], spool, "failing once")[0]
        assert Path(outcome.result["path"]).read_text() == f"from {outcome.result['token']}"
        assert len(list(Path(spool.path).glob("*/left.txt"))) == 2


def test_a_machine_that_keeps_failing_gives_one_readable_error(spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with Spool() as spool, pytest.raises(EngineError) as caught:
        SparkRunner(spark).run(always_fail, [{}], spool, "failing")
    assert "OSError: the disk is gone" in str(caught.value)
    assert "\tat " not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_control_c_cancels_the_job_and_the_session_lives_on(spark: Any, tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"

    def press_when_started() -> None:
        pause = threading.Event()
        while not started.exists():
            pause.wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_when_started, daemon=True).start()
    with Spool() as spool:
        with pytest.raises(Cancelled, match="the Spark job was cancelled"):
            SparkRunner(spark).run(slow, [{"started": str(started), "ended": str(ended)}], spool, "waiting")
        assert SparkRunner(spark).run(square, [{"n": 5}], spool, "squaring")[0].result["square"] == 25
    assert not ended.exists()


def test_a_session_given_by_the_user_runs_even_small_work(spark: Any) -> None:
    assert choose_runner("auto", 1, spark).name == "spark"


@pytest.mark.parametrize(
    ("master", "at_hand"),
    [
        ("local", False),
        ("local[2,4]", False),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", True),
        ("the Connect server", True),
    ],
)
def test_auto_takes_an_active_session_that_has_more_than_this_machine(
    spark: Any, monkeypatch: pytest.MonkeyPatch, master: str, at_hand: bool
) -> None:
    monkeypatch.delenv(MASTER_VARIABLE, raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr(import_module("strandline.engine.spark_session"), "where", lambda _: master)
    assert spark_at_hand() is at_hand
    assert runs_on_spark("auto", INLINE_LIMIT) is at_hand


def test_a_prepared_session_is_not_prepared_twice(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        import_module("strandline.engine.spark_session"), "ask_worker", lambda _: pytest.fail("asked again")
    )
    assert prepare(spark) is spark


def test_workers_that_lack_or_differ_in_a_library_are_refused_by_name(spark: Any) -> None:
    found = ask_worker(spark)
    check_worker(found, where="here")
    with pytest.raises(EngineError, match=r"duckdb is missing: no module.*docs/spark.md"):
        check_worker({**found, "duckdb": "missing: no module"}, where="here")
    with pytest.raises(EngineError, match=r"strandline is 0\.0\.1"):
        check_worker({**found, "strandline": "0.0.1"}, where="here")


def test_a_worker_tells_what_memory_a_task_has_there(spark: Any) -> None:
    assert SparkRunner(spark).task_memory == task_memory()
