"""Saved signatures carried from run to run find what the model finds, and a crash never harms them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import model
from tests.examples import LAWS, examples
from tests.random_tables import Case, cases

import strandline as sl
from strandline.changes.shape import ChangeSet
from strandline.differential import state_build
from strandline.differential.differential import Differential, find_changes
from strandline.differential.plan import DiffPlan
from strandline.differential.signatures import signature_file
from strandline.differential.signatures.state import SignatureState, load_state, save_state
from strandline.engine import InlineRunner
from strandline.errors import InputError, StateError
from strandline.relations.formats import spooled

NIGHTS = 4


def kinds(found: Differential) -> dict[Any, str]:
    return model.kinds_of(ChangeSet(found.header, found.to_arrow()))


@pytest.fixture
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny inputs in several parts, and several work items: what large inputs come to."""
    monkeypatch.setattr(spooled, "PART_ROWS", 2)
    monkeypatch.setattr(DiffPlan, "pieces", lambda *_: 3)
    monkeypatch.setattr(DiffPlan, "large_pieces", lambda *_: 3)
    monkeypatch.setattr(DiffPlan, "held_whole", False)


def carry(case: Case, **options: Any) -> None:
    """Runs one night after the other on the state alone and compares each answer with the model's."""
    folder = tempfile.mkdtemp()
    state = os.path.join(folder, "state")
    relations = [model.relation_of(table, case.key) for table in case.states]
    try:
        sl.diff(None, case.states[0], case.key, state=state, runner="inline", **options)
        for night in range(1, len(case.states)):
            found = sl.diff(None, case.states[night], case.key, state=state, runner="inline", **options)
            expected = model.difference(relations[night - 1], relations[night])
            assert kinds(found) == {key: change.kind for key, change in expected.items()}
            stayed = sum(change.kind != "delete" for change in expected.values())
            assert found.header.counts.unchanged == len(relations[night]) - stayed
            check_rows(found, expected)
            assert load_state(state).rows == len(relations[night])
    finally:
        shutil.rmtree(folder)


def check_rows(found: Differential, expected: dict[model.Key, model.Change]) -> None:
    """After images as the new side has them; `_changed` where the columns were signed one by one."""
    header = found.header
    for row in model.rows_of(found.to_arrow()):
        change = expected[model.key_of(row, header.key)]
        if change.after is not None:
            assert {name: row[name] for name in header.columns} == change.after
        if header.has_changed:
            told = row["_changed"]
            assert (None if told is None else list(told[1])) == change.changed


BITS = st.sampled_from([32, 64, 128])


@pytest.mark.parametrize("algorithm", ["kb", "kbp"])
@settings(LAWS, max_examples=examples(30))
@given(case=cases(states=NIGHTS), bits=BITS)
def test_a_state_carried_over_many_runs_finds_what_the_model_finds(algorithm: str, case: Case, bits: int) -> None:
    carry(case, algorithm=algorithm, bits=bits)


@pytest.mark.parametrize("algorithm", ["kb", "kbp"])
@settings(LAWS, max_examples=examples(20))
@given(case=cases(states=NIGHTS), bits=BITS)
def test_column_signatures_tell_which_columns_changed(algorithm: str, case: Case, bits: int) -> None:
    carry(case, algorithm=algorithm, bits=bits, column_signatures=True)


@pytest.mark.usefixtures("many_pieces")
@pytest.mark.parametrize("algorithm", ["kb", "kbp"])
@settings(LAWS, max_examples=examples(20))
@given(case=cases(states=NIGHTS))
def test_cutting_into_pieces_changes_nothing(algorithm: str, case: Case) -> None:
    carry(case, algorithm=algorithm, column_signatures=True)


# One state by hand


def orders(*rows: tuple[int, str, int]) -> pa.Table:
    return pa.table({"id": [r[0] for r in rows], "name": [r[1] for r in rows], "qty": [r[2] for r in rows]})


MONDAY = orders((1, "anchor", 3), (2, "buoy", 5), (3, "chain", 8))
TUESDAY = orders((2, "buoy", 6), (3, "chain", 8), (4, "dinghy", 1))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("algorithm", ["kb", "kbp"])
def test_a_small_side_in_key_order_is_signed_by_all_that_run_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(state_build, "SIGNED_BYTES", 1)
    monkeypatch.setattr(InlineRunner, "parallelism", 3)
    ids = np.arange(100)
    for name, table in {
        "old": pa.table({"id": ids, "v": ids % 7}),
        "new": pa.table({"id": ids[3:] + (ids[3:] > 50), "v": np.where(ids[3:] == 40, 9, ids[3:] % 7)}),
    }.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=10)
    old, new = str(folder / "old.parquet"), str(folder / "new.parquet")
    state = str(folder / "state")
    sl.diff(None, old, key="id", state=state, algorithm=algorithm, runner="inline")
    assert len(load_state(state).segments) == 3
    found = sl.diff(state, new, key="id", save_state=state, algorithm=algorithm, runner="inline")
    assert kinds(found) == kinds(sl.diff(old, new, key="id", algorithm="hash", runner="inline"))
    assert len(load_state(state).segments) == 3
    assert not sl.diff(state, new, key="id", algorithm=algorithm, runner="inline").header.counts.rows


WHOLE = {
    pa.int64(): [*range(8), -(1 << 63), (1 << 63) - 1],
    pa.uint64(): [*range(8), (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
}


@st.composite
def nights_of_whole_numbers(draw: st.DrawFn) -> list[pa.Table]:
    """States of a table whose key is one whole number or null, in order, so that it is signed in several segments."""
    type_ = draw(st.sampled_from(sorted(WHOLE, key=str)))
    keys = st.lists(st.sampled_from([None, *WHOLE[type_]]), unique=True)
    made = []
    for _ in range(3):
        ids = pa.array(draw(keys), type_).sort(null_placement=draw(st.sampled_from(["at_start", "at_end"])))
        values = draw(st.lists(st.integers(0, 1), min_size=len(ids), max_size=len(ids)))
        made.append(pa.table({"id": ids, "v": pa.array(values, pa.int64())}))
    return made


@pytest.mark.parametrize("algorithm", ["kb", "kbp"])
@settings(LAWS, max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nights=nights_of_whole_numbers())
def test_segments_with_keys_beside_their_numbers_and_without_are_of_one_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, nights: list[pa.Table]
) -> None:
    monkeypatch.setattr(state_build, "SIGNED_BYTES", 1)
    monkeypatch.setattr(InlineRunner, "parallelism", 3)
    monkeypatch.setattr(DiffPlan, "held_whole", False)
    state, relations = str(folder / "state"), [model.relation_of(table, ("id",)) for table in nights]
    shutil.rmtree(state, ignore_errors=True)
    for night, table in enumerate(nights):
        pq.write_table(table, folder / "extract.parquet", row_group_size=2)
        found = sl.diff(None, str(folder / "extract.parquet"), "id", state=state, algorithm=algorithm, runner="inline")
        before = relations[night - 1] if night else {}
        assert kinds(found) == {key: one.kind for key, one in model.difference(before, relations[night]).items()}


def test_pointers_are_saved_only_when_asked_for(folder: Path) -> None:
    sl.diff(None, MONDAY, "id", state="kb")
    sl.diff(None, MONDAY, "id", state="kbp", algorithm="kbp")
    assert not load_state("kb").spec.pointers
    assert load_state("kbp").spec.pointers


def test_a_state_with_pointers_serves_without_them_too(folder: Path) -> None:
    sl.diff(None, MONDAY, "id", save_state="kbp", algorithm="kbp")
    assert kinds(sl.diff("kbp", TUESDAY, "id", algorithm="kb")) == {(1,): "delete", (2,): "update", (4,): "insert"}


def test_save_state_writes_one_and_leaves_the_one_it_compared_with(folder: Path) -> None:
    sl.diff(None, MONDAY, "id", save_state="monday")
    sl.diff("monday", TUESDAY, "id", save_state="tuesday")
    assert (load_state("monday").rows, load_state("tuesday").rows) == (3, 3)
    assert len(sl.diff("tuesday", TUESDAY, "id")) == 0
    assert len(sl.diff("monday", TUESDAY, "id")) == 3


@pytest.mark.parametrize("algorithm", ["merge", "hash", "window", "kb", "kbp"])
def test_every_algorithm_can_leave_a_state(folder: Path, algorithm: str) -> None:
    sl.diff(MONDAY, TUESDAY, "id", algorithm=algorithm, save_state="tuesday")
    assert len(sl.diff("tuesday", TUESDAY, "id")) == 0


def test_bits_follow_from_a_target_and_then_from_the_state(folder: Path) -> None:
    sl.diff(None, MONDAY, "id", state="s", miss_probability=1e-12)
    bits = load_state("s").spec.scheme.bits
    assert 32 < bits < 64
    found = sl.diff(None, TUESDAY, "id", state="s")
    assert load_state("s").spec.scheme.bits == bits
    assert 0 < (found.run.miss_probability or 0) <= 1e-12
    assert (found.run.runs_to_first_miss or 0) >= 1e12


def test_verify_finds_an_update_that_signatures_missed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(table: pa.Table, scheme: Any) -> Any:
        return np.zeros(table.num_rows, dtype=np.uint64)

    monkeypatch.setattr(signature_file, "row_signatures", blind)
    sl.diff(None, MONDAY, "id", state="s")
    missed = sl.diff("s", TUESDAY, "id")
    assert kinds(missed) == {(1,): "delete", (4,): "insert"}
    pq.write_table(MONDAY, "monday.parquet")
    found = sl.diff("s", TUESDAY, "id", verify="monday.parquet")
    assert found.run.missed == 1
    assert kinds(found) == {(1,): "delete", (2,): "update", (4,): "insert"}
    assert found.header.has_before


def test_verifying_with_another_extract_than_that_of_the_state_is_refused(folder: Path) -> None:
    sl.diff(None, MONDAY, "id", state="s")
    for other in (MONDAY.slice(1), pa.concat_tables([MONDAY, MONDAY.slice(0, 1).set_column(0, "id", [[9]])])):
        pq.write_table(other, "other.parquet")
        with pytest.raises(StateError, match=r"other\.parquet is not the extract that the signatures were made from"):
            sl.diff(None, TUESDAY, "id", state="s", verify="other.parquet")
    pq.write_table(MONDAY, "monday.parquet")
    assert sl.diff(None, TUESDAY, "id", state="s", verify="monday.parquet").run.missed == 0, "the state stayed"


def test_pairs_are_not_signed(folder: Path) -> None:
    named: list[Any] = [{"state": "s"}, {"save_state": "s"}]
    for options in named:
        with pytest.raises(InputError, match="duplicates are paired"):
            sl.diff(MONDAY, TUESDAY, "id", duplicates="pair", **options)


def test_an_added_column_is_told_and_signed_from_then_on(folder: Path) -> None:
    shades = TUESDAY.append_column("shade", pa.array(["red", "red", "red"]))
    other = TUESDAY.append_column("shade", pa.array(["red", "blue", "red"]))
    sl.diff(None, MONDAY, "id", state="s")
    found = sl.diff(None, shades, "id", state="s")
    assert list(found.header.added) == ["shade"]
    assert kinds(found) == {(1,): "delete", (2,): "update", (4,): "insert"}
    assert kinds(sl.diff(None, other, "id", state="s")) == {(3,): "update"}


def test_a_renamed_column_is_found_under_its_new_name_in_the_saved_signatures(folder: Path) -> None:
    sl.diff(None, MONDAY, "id", state="s")
    new = TUESDAY.rename_columns(["number", *TUESDAY.column_names[1:-1], "amount"])
    names = {"id": "number", TUESDAY.column_names[-1]: "amount"}
    with pytest.raises(sl.StrandlineError, match="no column 'nothing'"):
        sl.diff(None, new, "number", state="s", rename={"nothing": "x"})
    found = sl.diff(None, new, "number", state="s", rename=names)
    assert kinds(found) == {(1,): "delete", (2,): "update", (4,): "insert"}
    assert len(sl.diff(None, new, "number", state="s")) == 0


def test_a_first_run_with_a_threshold_is_no_suspect_reload(folder: Path) -> None:
    assert len(sl.diff(None, MONDAY, "id", state="s", fail_over="10%")) == 3
    with pytest.raises(sl.StrandlineError, match="suspect reload"):
        sl.diff(None, TUESDAY, "id", state="s", fail_over="10%")
    assert len(sl.diff(None, MONDAY, "id", state="s")) == 0


def test_a_state_is_found_again_by_another_order_of_rows_and_columns(folder: Path) -> None:
    sl.diff(None, MONDAY, "id", state="s")
    turned = MONDAY.select(["qty", "id", "name"]).take([2, 0, 1])
    assert len(sl.diff(None, turned, "id", state="s")) == 0


# Crashes


class Crash(BaseException):
    """The power goes: from here on nothing reaches the disk."""


class Failing:
    """Counts the steps of a save that touch the disk, and lets the one numbered `at` fail."""

    def __init__(self, at: int, error: Callable[[], BaseException]) -> None:
        self.at = at
        self.error = error
        self.steps = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self.steps += 1
            failed = self.error()
            if self.steps == self.at or (self.steps > self.at and isinstance(failed, Crash)):
                raise failed
            return function(*args, **kwargs)

        return step

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        targets: list[tuple[Any, str]] = [
            *((os, name) for name in ("fsync", "link", "replace")),
            *((shutil, name) for name in ("copyfile", "rmtree")),
            *((Path, name) for name in ("mkdir", "write_text", "unlink")),
        ]
        with pytest.MonkeyPatch.context() as patch:
            for home, name in targets:
                patch.setattr(home, name, self.wrap(getattr(home, name)))
            yield


def state_of(table: pa.Table, folder: Path) -> SignatureState:
    sl.diff(None, table, "id", save_state=str(folder))
    return load_state(folder)


def answers(path: str) -> str:
    """Which night's state stands there, by what it answers."""
    for name, table in (("old", MONDAY), ("new", TUESDAY)):
        if len(sl.diff(path, table, "id")) == 0:
            return name
    return "neither"


def test_saves_at_the_same_time_wait_for_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import strandline.differential.signatures.state as module

    states = [state_of(table, folder / name) for name, table in (("monday", MONDAY), ("tuesday", TUESDAY))]
    copying, copy = threading.Barrier(2), module._copy_segments

    def slowly(segments: Any, generation: str) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            copying.wait(timeout=0.3)  # both are here at once, or the other one waits outside
        return copy(segments, generation)

    monkeypatch.setattr(module, "_copy_segments", slowly)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda state: save_state(state, folder / "s"), states))
    assert copying.broken
    assert answers(str(folder / "s")) in ("old", "new")


def test_a_run_waits_for_another_that_replaces_its_state_and_goes_on_from_the_new_one(folder: Path) -> None:
    state = str(folder / "s")
    for name, table in (("monday", MONDAY), ("tuesday", TUESDAY)):
        pq.write_table(table, folder / f"{name}.parquet")
    sl.diff(None, MONDAY, "id", state=state, runner="inline")
    first = find_changes(None, folder / "tuesday.parquet", "id", state=state, runner="inline")
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(sl.diff, None, folder / "monday.parquet", "id", state=state, runner="inline")
        with contextlib.suppress(TimeoutError):
            later.result(timeout=0.3)
        first.keep_state()
    assert later.result().header.source == first.header.target
    assert later.result().header.counts.rows == first.header.counts.rows
    with pytest.raises(InputError):
        find_changes(None, folder / "absent.parquet", "id", state=state, runner="inline")
    find_changes(None, MONDAY, "id", state=state, runner="inline")  # whoever fails or lets go does not hold it


ERRORS: dict[str, Callable[[], BaseException]] = {
    "the machine stops": Crash,
    "the disk refuses": lambda: OSError(28, "No space left on device"),
    "someone presses Ctrl-C": KeyboardInterrupt,
}


@pytest.mark.parametrize("first", [True, False], ids=["first save", "later save"])
@pytest.mark.parametrize("case", ERRORS)
def test_a_save_that_fails_at_any_step_leaves_the_old_state_or_the_new_one(
    folder: Path, case: str, first: bool
) -> None:
    new = state_of(TUESDAY, folder / "source")
    seen = set()
    at = 0
    while True:
        at += 1
        home = folder / f"state-{at}"
        if not first:
            state_of(MONDAY, home)
        failing = Failing(at, ERRORS[case])
        with failing.installed(), contextlib.suppress(Crash, OSError, KeyboardInterrupt):
            save_state(new, home)
        if failing.steps < at:
            break
        if first and not (home / "manifest.json").exists():
            seen.add("nothing")
        else:
            seen.add(answers(str(home)))
        # Whatever was left, the next run goes on from there and leaves one clean state.
        sl.diff(None, TUESDAY, "id", state=str(home))
        assert answers(str(home)) == "new"
        assert len(list(home.iterdir())) == 2, sorted(home.iterdir())
    assert at > 6
    assert seen == ({"nothing", "new"} if first else {"old", "new"})
