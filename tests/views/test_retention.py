"""Positions are commits, by number and id; what is kept for a copy has an end, and after it the copy is mended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pages.toy import Clock

from strandline.errors import InputError
from strandline.pages import check_store
from strandline.storage import MemoryStorage
from strandline.store import Store, create, create_on
from strandline.store import open as open_store
from strandline.views.difference_table import all_segments, entries
from strandline.views.known_views import read_views
from strandline.views.retention import DAY, UNUSED, expire

MAINTAIN = pytest.mark.parametrize("maintain", ["eager", "deferred"])


def expired(store: Store) -> list[str]:
    with read_views(store) as known:
        return expire(store, known)


def example(store: Store, maintain: str) -> None:
    store.create_table("t", pa.table({"k": range(100), "x": range(100)}), key="k")
    store.view("v", "select k, x from t where x < 90", maintain=maintain)


@MAINTAIN
def test_a_position_is_the_commit_that_the_pages_record(tmp_path: Path, maintain: str) -> None:
    with create_on(MemoryStorage()) as store:
        example(store, maintain)
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#v")
        store.table("t").update(where="k = 1", set={"x": "x + 1"})
        copy.refresh()
        taken = copy.record.taken
        assert taken is not None
        commits = {(int(one.commit), one.id) for one in store.pages.log() if one.kind == "commit"}
        assert (taken.commit, taken.id) in commits
        assert (taken.store, taken.version) == (store.identity, store.name)


@MAINTAIN
def test_two_copies_of_a_store_that_diverge_are_told_apart(tmp_path: Path, maintain: str) -> None:
    """One folder copied aside: both go on under the same identity and count the same commit numbers."""
    with create(tmp_path / "one") as store:
        example(store, maintain)
        store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#v")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with open_store(tmp_path / "one") as one, open_store(tmp_path / "two") as two:
        assert one.identity == two.identity
        for number, each in enumerate((one, two)):
            each.table("t").update(where="k = 1", set={"x": f"x + {number + 1}"})
        assert one.copy("v").refresh().method == "difference"
        done = two.copy("v").refresh()
        assert done.method == "repair"
        assert two.copy("v").verify()
        places = [each.copy("v").record.taken for each in (one, two)]
        assert places[0] is not None
        assert places[1] is not None
        assert places[0].commit == places[1].commit
        assert places[0].id != places[1].id
        assert one.copy("v").refresh().method == "repair"
        assert one.copy("v").verify()
        one.table("t").insert([{"k": 200, "x": 1}])
        assert one.copy("v").refresh().method == "difference"


@MAINTAIN
def test_a_copy_that_was_away_too_long_is_let_go_and_mended_when_it_is_back(tmp_path: Path, maintain: str) -> None:
    clock, storage = Clock(), MemoryStorage()
    with create_on(storage, environment=clock.environment()) as store:
        example(store, maintain)
        slow = store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#slow", keep="10d")
        fast = store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#fast")
        clock.time += 7 * DAY
        for day in range(8, 12):
            clock.time += DAY
            store.table("t").update(where="k = 1", set={"x": "x + 1"})
            assert fast.refresh().messages == 1
            assert (slow.record.taken is None) == (day >= 10)
        with store.state() as view:
            assert not any(len(entries(view, store.cache, name, 0)) for name in all_segments(view, store.cache))
        assert len(store.pages.snapshots()) == (1 if maintain == "deferred" else 0), "what is old was freed"
        done = slow.refresh()
        assert (done.method, done.messages) == ("repair", 1), "only what differs, never all rows"
        assert slow.verify()
        store.table("t").update(where="k = 2", set={"x": "x + 1"})
        assert slow.refresh().method == "difference"
    assert check_store(storage).ok


@MAINTAIN
def test_a_copy_that_is_refreshed_stays_known_though_nothing_changes(tmp_path: Path, maintain: str) -> None:
    clock = Clock()
    with create_on(MemoryStorage(), environment=clock.environment()) as store:
        example(store, maintain)
        idle = store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#idle", keep="10d")
        for _ in range(6):
            clock.time += 3 * DAY
            assert idle.refresh().method == "nothing"
            assert expired(store) == []
        store.table("t").update(where="k = 1", set={"x": "x + 1"})
        assert idle.refresh().method == "difference"


@MAINTAIN
def test_what_has_outgrown_the_base_is_let_go_after_a_day(
    tmp_path: Path, maintain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.views.retention.SMALL", 0)
    clock = Clock()
    with create_on(MemoryStorage(), environment=clock.environment()) as store:
        example(store, maintain)
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#v")
        store.table("t").delete(where="k >= 5")
        assert expired(store) == []
        clock.time += DAY + 1
        assert expired(store) == ["v"]
        assert copy.refresh().method == "repair"
        assert copy.verify()


def test_a_difference_table_that_nobody_needs_is_no_longer_kept(tmp_path: Path) -> None:
    clock = Clock()
    with create_on(MemoryStorage(), environment=clock.environment()) as store:
        example(store, "eager")
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#v")
        store.table("t").update(set={"x": "x + 1"})
        clock.time += 31 * DAY
        assert expired(store) == ["v"]
        with store.state() as view:
            assert all_segments(view, store.cache)["v"].broken == UNUSED
        store.table("t").update(set={"x": "x + 1"})
        assert len(store.table("_view.difference.v").to_arrow()) == 0
        done = copy.refresh()
        assert (done.method, copy.verify().equal) == ("repair", True)
        assert UNUSED in done.why
        store.table("t").update(where="k = 1", set={"x": "x + 1"})
        assert copy.refresh().method == "difference"


def test_how_long_is_said_in_words_and_can_be_changed(tmp_path: Path) -> None:
    with create_on(MemoryStorage()) as store:
        example(store, "deferred")
        target = f"sqlite:///{tmp_path}/f.db#v"
        assert store.view("v").replicate(target).record.keep == 30 * DAY
        assert store.view("v").replicate(target, keep="12h").record.keep == DAY / 2
        for wrong in ("a while", "-1d", 0, ""):
            with pytest.raises(InputError, match="no length of time"):
                store.view("v").replicate(target, keep=wrong)


@MAINTAIN
@pytest.mark.parametrize("stored", [False, True])
def test_a_copy_of_a_view_that_is_defined_anew_over_other_tables_is_in_nobodys_way(
    tmp_path: Path, maintain: str, stored: bool
) -> None:
    clock = Clock()
    with create_on(MemoryStorage(), environment=clock.environment()) as store:
        example(store, maintain)
        store.create_table("u", pa.table({"k": range(10), "x": range(10)}), key="k")
        copy = store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#v", name="c")
        other = store.view("u").replicate(f"sqlite:///{tmp_path}/f.db#u")
        store.view("v", "select k, x from u where x < 5", maintain=maintain, stored=stored)
        for _ in range(2):
            clock.time += 2 * DAY
            store.table("u").update(where="k = 1", set={"x": "x + 1"})
            assert other.refresh().method == "difference"
        assert {name for name, done in store.refresh().items() if done.messages} <= {"c", "v"}
        assert copy.verify()
        assert store.view("v").replicate(f"sqlite:///{tmp_path}/f.db#again", name="again").verify()
