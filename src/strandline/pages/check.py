"""Checking a store: every checksum, and every numbered invariant (docs/store-format.md).

`check` reads everything from storage, nothing from a running store's memory. It is the only user of
listing. Repairing removes only what is proved unreachable: named by no state of any version, not waiting in
any list of freed objects, and outside every block of names that a process on the roll holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.errors import StrandlineError
from strandline.pages.census import Census, take_census
from strandline.pages.ids import PhysicalPage
from strandline.pages.invariants import INVARIANTS, unreachable
from strandline.pages.master import read_master
from strandline.pages.objects import Objects
from strandline.pages.roll import read_roll
from strandline.storage import Storage


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: which invariant (0: a checksum or a format), where, and what."""

    invariant: int
    where: str
    what: str


@dataclass(slots=True)
class Report:
    """What a check found. `unreachable` lists objects that a repair may delete."""

    findings: list[Finding] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.findings and not self.unreachable


def check(storage: Storage, *, repair: bool = False, pages: bool = True) -> Report:
    """Verify a store; with `repair`, delete what is unreachable. `pages` says whether page bytes are
    verified.
    """
    objects = Objects(storage, cached=1 << 20)
    try:
        # The roll before the pointers: what a process settled before is in the pointers, what it has not is
        # here.
        roll = read_roll(storage).roll
        master = read_master(objects).master
    except StrandlineError as error:
        return Report([Finding(0, "MASTER or PROCESSES", error.message())])
    census = Census(objects, master, roll, read_pages=pages)
    take_census(census)
    report = Report(objects=census.pages, bytes=census.bytes)
    report.findings += [Finding(0, where, what) for where, what in census.unreadable]
    for number, predicate in INVARIANTS.items():
        report.findings += [Finding(number, where, what) for where, what in predicate(census)]
    if not census.damaged:
        # What a damaged node led to can't be known, so nothing is called unreachable beside one.
        report.unreachable = list(unreachable(census))
    if repair:
        for name in report.unreachable:
            objects.delete(PhysicalPage(name))
        report.removed, report.unreachable = report.unreachable, []
    return report
