"""What `at=` may mean, in one place: now, a snapshot's name, a commit number, a time; or a text that says one."""

from __future__ import annotations

import datetime as dt

from strandline.errors import InputError, NotFound
from strandline.pages.page_version import PageVersion
from strandline.pages.pointer import SnapshotRecord
from strandline.pages.snapshots import Snapshot

SHOWN = 20


def state_at(version: PageVersion, at: object) -> Snapshot:
    """The state that `at` means, held until closed. None is now; a text is a snapshot's name here; a datetime without
    a zone is local time.
    """
    if at is None:
        version.look()
        return version.snapshot()
    if isinstance(at, SnapshotRecord):
        return version.at(at.name)
    if isinstance(at, dt.datetime):
        return version.at(at.timestamp())
    if isinstance(at, (str, int)) and not isinstance(at, bool):
        return version.at(at)
    raise InputError(
        f"{at!r} is no state", doing="Reading a state", hint="Give a name, a snapshot, a commit number, a datetime"
    )


def parse_at(version: PageVersion, text: str | None) -> str | int | dt.datetime | None:
    """What a text from a command line or an option means: a snapshot's name, else a commit number, else a time.

    Without a text: now.
    """
    if text is None:
        return None
    known = [record.name for record in version.snapshots()]
    if text in known:
        return text
    if text.isdecimal():
        return int(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        names = f"The snapshots are {', '.join(known[:SHOWN])}" if known else "There are no snapshots yet"
        raise NotFound(
            f"there is no snapshot {text}",
            doing=f"Looking for the state {text}",
            hint=f"{names}; a commit number or a time like 2030-01-31T12:00 will do too",
        ) from None
