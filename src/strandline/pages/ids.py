"""The types of ids in a store, each its own, with their reserved values; and the clock and random ids of a process.

`Environment` is all that the control plane takes from outside: time, and randomness. Commits, tables,
pages and processes are numbered elsewhere.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NewType

from strandline.errors import InputError, is_broken
from strandline.pages.liveness import ProcessIdentity

CommitNumber = NewType("CommitNumber", int)
"""The sequence number of a commit batch in one version's chain; the paper's timestamp (section 3.2.2)."""

TableId = NewType("TableId", int)
"""An allocation domain (section 3.3): one table. Never used again. Negative: not committed yet."""

LogicalPage = NewType("LogicalPage", int)
"""The number of a logical page within its domain."""

PhysicalPage = NewType("PhysicalPage", str)
"""The storage name of an immutable page or node. Never used again."""

ProcessId = NewType("ProcessId", int)
"""A process that works on the store. Never used again."""

TransactionId = NewType("TransactionId", int)
"""A transaction within one process: greater means younger."""

VersionObject = NewType("VersionObject", str)
"""The storage name of a version's page-table pointer. Never used again, unlike the version's own name."""

OWN_PREFIX = "_strandline_"
_OWN_NAMES = ("_views", "_view_copies", "_what_ifs", "_what_if_ids")
_OWN_PREFIXES = ("_view.", "_what_if.", OWN_PREFIX)


def is_own_name(name: str) -> bool:
    """Whether a table, a snapshot or a version of that name is one of our own, and none that a user named."""
    return name in _OWN_NAMES or name.startswith(_OWN_PREFIXES)


def refuse_own_name(name: str, doing: str, hint: str = "Take a name that begins otherwise") -> None:
    """Refuse to a user what has a name that is kept for what we make, write and drop ourselves, or that is no text."""
    refuse_broken_name(name, doing)
    if is_own_name(name):
        raise InputError(f"{name!r} is kept for what Strandline itself makes", doing=doing, hint=hint)


def refuse_broken_name(name: str, doing: str) -> None:
    """Refuse what can't be stored as a name."""
    if is_broken(name):
        raise InputError(f"{name!r} is no name: it holds half of a character", doing=doing)


def encoded_name(name: str) -> bytes:
    """A table's name as the catalog has it."""
    refuse_broken_name(name, "looking for a table")
    return name.encode()


CATALOG = TableId(0)
"""The system domain: its directory maps the names of domains to their numbers."""

NO_DOMAIN = TableId(-1)
"""Stands where an object belongs to no domain: nodes of the upper tier. Every snapshot holds them."""

EXTENSION = TableId(-2)
"""Stands where an object is an extension page: no snapshot holds any."""

FIRST_PLACEHOLDER = TableId(-10)
"""Domains that a transaction creates are numbered from here downwards until they are installed."""

DIRECTORY_ROOT = LogicalPage(0)
"""In every domain, the logical page that holds the root of its directory."""

UNBORN = CommitNumber(-1)
"""The commit number of what no commit has installed yet."""

NEVER = CommitNumber(-1)
"""The infinite past: older than every commit."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock and ids, passed in so that tests can choose them.

    `now` is wall-clock time in seconds, for people; nothing depends on its being right. `monotonic`
    measures how long a process's beat has stood still. `new_id` gives a random name that never repeats.
    """

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = lambda: secrets.token_hex(8)
    identity: Callable[[], ProcessIdentity | None] = ProcessIdentity.of_this_process
    """Which process this is, for others on the same machine."""
    patience: float = 60.0
    """Seconds for which a beat must stand still before its process is taken for dead."""
    lock_limit: float = 600.0
    """Seconds for which a transaction waits for others of its process."""
