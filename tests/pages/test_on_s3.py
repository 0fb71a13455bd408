"""A store on an S3-compatible service: two processes, conflicts, snapshots, a fork, and a sound end."""

from __future__ import annotations

import pytest
from tests.pages.toy import Clock, all_rows, assert_sound, created, domain_of, opened, put, read, write
from tests.storage.s3 import bucket

from strandline.errors import Conflict
from strandline.storage import open_storage


def test_a_store_lives_on_an_object_store() -> None:
    with bucket() as name:
        storage = open_storage(f"s3://{name}/shop")
        clock = Clock()
        with created(storage, clock) as one, opened(open_storage(storage.url), clock) as other:
            main = one.version()
            put(main, "t", **{f"k{n:02}": n for n in range(20)})
            theirs = other.version()
            theirs.refresh()
            domain = domain_of(main, "t")
            first, second = main.begin(), theirs.begin()
            write(first, domain, "k00", "mine")
            write(second, domain, "k19", "theirs")
            first.commit()
            second.commit()
            late = main.begin()
            read(late, domain, "k05")
            write(late, domain, "k06", 0)
            put(theirs, "t", k05="changed")
            with pytest.raises(Conflict):
                late.commit()
            main.name_snapshot("monday")
            idea = one.fork("idea")
            put(idea, "t", k01="idea")
            put(main, "t", k01="main")
            with other.version().at("monday") as monday:
                assert all_rows(monday.view)["t"]["k01"] == 1
            one.drop_version("idea")
            main.drop_snapshot("monday")
            assert all_rows(theirs.refresh())["t"]["k00"] == "mine"
        assert_sound(storage)
