"""What a pipeline file says: sources, tables, views, replicas, dumps, as plain facts.

Texts that may hold `${NAME}` are kept as they were written; `secret.Secrets` puts values in when something is opened,
so that whatever is stored or shown of them shows the name and never the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DETECTORS = ("auto", "store", "signatures", "annotated")
PICKS = ("all", "latest")
DRIFTS = ("add", "keep", "refuse")
METHODS = ("auto", "difference", "full", "repair")
SNAPSHOT = "{name}-{step:04}"


@dataclass(frozen=True)
class Guards:
    """What makes an extract suspect. Shares are of the table's rows before the step; `fresh` is in seconds."""

    changed: float | None = None
    deleted: float | None = None
    required: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    fresh: float | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Reading:
    """How a file is read, where name and content don't tell."""

    format: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    header: bool = True


@dataclass(frozen=True)
class Source:
    """Where a table's rows come from. `pick` says what a glob means: its newest match, or all of them together."""

    name: str
    location: str
    table: str
    key: tuple[str, ...] = ()
    pick: str = "all"
    detect: str = "auto"
    drift: str = "add"
    reading: Reading = Reading()
    guards: Guards = Guards()


@dataclass(frozen=True)
class ViewOf:
    """A view of the store that the pipeline keeps defined; not `strict`, it may be one to compute anew each time."""

    name: str
    sql: str
    strict: bool = True


@dataclass(frozen=True)
class ReplicaOf:
    """A copy of a table or view. `every` is a period of the calendar or seconds; None: at every run."""

    name: str
    of: str
    to: str
    every: str | float | None = None
    method: str = "auto"


@dataclass(frozen=True)
class DumpTo:
    """A place for dumps, with the levels that are due by the calendar and, if given, the rule for keeping them."""

    name: str
    to: str
    schedule: str
    keep: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class Settings:
    """A whole pipeline file. `folder` is where it stands: paths in it are meant from there."""

    name: str
    path: str
    folder: str
    store: str
    work: str
    snapshot: str = SNAPSHOT
    keep: str | None = None
    sources: tuple[Source, ...] = ()
    views: tuple[ViewOf, ...] = ()
    replicas: tuple[ReplicaOf, ...] = ()
    dumps: tuple[DumpTo, ...] = ()
