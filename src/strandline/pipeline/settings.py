"""The settings of a pipeline: sources, tables, views, replicas and dumps, as plain facts, read from a TOML file.

Every key is checked; what is wrong is named with its line and the nearest key. Texts that may hold `${NAME}` are kept
as they were written; `Secrets` fills in values when something is opened, so that whatever is stored or shown has the
name and never the value.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.differential import share
from strandline.dumps import PERIODS, SCHEDULE, parse_rule, parse_schedule
from strandline.errors import InputError, did_you_mean
from strandline.pages import is_own_name
from strandline.pipeline.places import located
from strandline.pipeline.settings_file import Section, read_sections
from strandline.relations import ReadOptions, kind_of
from strandline.replication import BASE_DIALECTS
from strandline.storage import absolute
from strandline.values import seconds_of
from strandline.views import MAINTAIN, POLICIES

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
class ReadSettings:
    """How a file is read, where name and content don't show it."""

    format: str | None = None
    options: ReadOptions = field(default_factory=ReadOptions)


@dataclass(frozen=True)
class SourceSettings:
    """Where a table's rows come from. `pick` says what a glob means: its newest match, or all of them together."""

    name: str
    location: str
    table: str
    key: tuple[str, ...] = ()
    pick: str = "all"
    detect: str = "auto"
    drift: str = "add"
    reading: ReadSettings = ReadSettings()
    guards: Guards = Guards()


@dataclass(frozen=True)
class ViewSettings:
    """A view that the pipeline keeps defined; if not `strict`, it may be one that is computed anew each time."""

    name: str
    sql: str
    strict: bool = True
    maintain: str = MAINTAIN[0]
    refresh_policy: str = POLICIES[0]
    comment: str = ""
    stored: bool = False
    target_lag: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What `store.view` takes beside name and text."""
        described = {"maintain": self.maintain, "refresh_policy": self.refresh_policy, "comment": self.comment}
        return {"strict": self.strict, "stored": self.stored, "target_lag": self.target_lag, **described}


@dataclass(frozen=True)
class ReplicaSettings:
    """A copy of a table or view. `every` is a period of the calendar or seconds; None: at every run."""

    name: str
    of: str
    to: str
    every: str | float | None = None
    method: str = "auto"
    target_lag: float | None = None


@dataclass(frozen=True)
class DumpSettings:
    """A target for dumps, with its schedule of levels and, if given, the rule for keeping them."""

    name: str
    to: str
    schedule: str
    keep: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class NotifySettings:
    """Who is told of a run: a webhook, a command (JSON on its standard input), a lineage service or file."""

    webhook: str | None = None
    command: tuple[str, ...] = ()
    on: str = "trouble"
    openlineage: str | None = None


@dataclass(frozen=True)
class PipelineSettings:
    """A whole pipeline file. Paths in it are relative to its `folder`."""

    name: str
    path: str
    folder: str
    store: str
    work: str
    snapshot: str = SNAPSHOT
    keep: str | None = None
    sources: tuple[SourceSettings, ...] = ()
    views: tuple[ViewSettings, ...] = ()
    replicas: tuple[ReplicaSettings, ...] = ()
    dumps: tuple[DumpSettings, ...] = ()
    notify: NotifySettings = NotifySettings()


_TOP = ("name", "store", "work", "snapshot", "keep", "sources", "views", "replicas", "dumps", "notify")
_SOURCE = (
    *("from", "key", "table", "pick", "detect", "drift", "guards"),
    *("format", "types", "delimiter", "header", "encoding", "nulls", "union_by_name", "query"),
)
_GUARDS = ("changed", "deleted", "required", "unique", "fresh", "rows")
_NOTIFY = ("webhook", "command", "on", "openlineage")
_EXAMPLE = '[sources.orders]\nfrom = "orders-*.parquet"\nkey = "id"'


def read_settings(path: str | os.PathLike[str]) -> PipelineSettings:
    """The pipeline in a file."""
    return _settings(read_sections(path))


def duration(text: str) -> float:
    """Seconds, from text such as `30m`, `36h` or `2d`.

    >>> duration("36h"), duration("90s")
    (129600.0, 90.0)
    """
    seconds = seconds_of(text) if text.strip()[-1:].isalpha() else None  # a number alone may be meant in any unit
    if not seconds:
        raise InputError(
            f"{text!r} is no duration", doing="reading a duration", hint="Say for example 90s, 30m, 36h, 2d"
        )
    return seconds


def _settings(top: Section) -> PipelineSettings:
    top.only(_TOP, ("store", "sources"))
    path = os.path.abspath(top.document.path)
    folder, stem = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
    sources = tuple(_source(name, section) for name, section in top.each("sources"))
    if not sources:
        raise top.error("there is no source", "sources", f"Add one:\n{_EXAMPLE}")
    name = top.text("name", stem)
    settings = PipelineSettings(
        name=name,
        path=path,
        folder=folder,
        store=top.text("store"),
        work=absolute(located(top.text("work", f"{stem}.work"), folder)),
        snapshot=_snapshot(top, name),
        keep=_rule(top),
        sources=sources,
        views=tuple(_view(name, section) for name, section in top.each("views")),
        replicas=tuple(_replica(name, section) for name, section in top.each("replicas")),
        dumps=tuple(_dump(name, section, folder) for name, section in top.each("dumps")),
        notify=_notify(top.inner("notify")),
    )
    _check_names(settings, top)
    return settings


def _notify(section: Section) -> NotifySettings:
    section.only(_NOTIFY)
    command = section.values.get("command", [])
    if isinstance(command, str):
        command = shlex.split(command)
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise section.error(f"'command' has to be text or a list of words, and is {command!r}", "command")
    on = section.one_of("on", ("trouble", "always"))
    return NotifySettings(section.text("webhook"), tuple(command), on, section.text("openlineage"))


def _source(name: str, section: Section) -> SourceSettings:
    section.only(_SOURCE, ("from",))
    return SourceSettings(
        name=name,
        location=section.text("from"),
        table=section.text("table", name),
        key=section.names("key"),
        pick=section.one_of("pick", PICKS),
        detect=section.one_of("detect", DETECTORS),
        drift=section.one_of("drift", DRIFTS),
        reading=ReadSettings(section.text("format"), _read_options(section)),
        guards=_guards(section.inner("guards")),
    )


def _read_options(section: Section) -> ReadOptions:
    options = ReadOptions(
        types=dict(section.inner("types").values),
        header=bool(section.values.get("header", True)),
        nulls=section.names("nulls"),
        union_by_name=bool(section.values.get("union_by_name", False)),
        query=section.text("query"),
    )
    options = section.read("delimiter", lambda text: replace(options, delimiter=str(text))) or options
    return section.read("encoding", lambda text: replace(options, encoding=str(text))) or options


def _guards(section: Section) -> Guards:
    section.only(_GUARDS)
    unique = section.values.get("unique", [])
    unique = [unique] if isinstance(unique, str) else unique
    return Guards(
        changed=section.read("changed", share),
        deleted=section.read("deleted", _share_deleted),
        required=section.names("required"),
        unique=tuple((one,) if isinstance(one, str) else tuple(one) for one in unique),
        fresh=section.read("fresh", duration_of),
        rows=section.read("rows", _count),
    )


def _view(name: str, section: Section) -> ViewSettings:
    known = ("sql", "strict", "maintain", "refresh_policy", "comment", "stored", "target_lag")
    section.only(known, ("sql",))
    return ViewSettings(
        name,
        section.text("sql").strip(),
        bool(section.values.get("strict", True)),
        section.one_of("maintain", MAINTAIN),
        section.one_of("refresh_policy", POLICIES),
        section.text("comment") or "",
        bool(section.values.get("stored", False)),
        section.read("target_lag", duration_of),
    )


def _replica(name: str, section: Section) -> ReplicaSettings:
    section.only(("of", "to", "every", "method", "target_lag"), ("of", "to"))
    return ReplicaSettings(
        name,
        of=section.text("of"),
        to=section.text("to"),
        every=section.read("every", _period),
        method=section.one_of("method", METHODS),
        target_lag=section.read("target_lag", duration_of),
    )


def _dump(name: str, section: Section, folder: str) -> DumpSettings:
    section.only(("to", "schedule", "keep", "key_file"), ("to",))
    section.read("schedule", parse_schedule)
    key_file = section.text("key_file")
    return DumpSettings(
        name,
        to=section.text("to"),
        schedule=section.text("schedule", SCHEDULE),
        keep=_rule(section),
        key_file=None if key_file is None else located(key_file, folder),
    )


def _check_names(settings: PipelineSettings, top: Section) -> None:
    """Refuses a table that two sources fill, and a copy of something that no step makes."""
    tables = [source.table for source in settings.sources]
    for source in settings.sources:
        if tables.count(source.table) > 1:
            raise top.document.error(f"two sources fill the table {source.table!r}", ("sources", source.name), "table")
        _check_own(source.table, ("sources", source.name), top)
        _check_detector(source, top)
    known = [*tables, *(view.name for view in settings.views)]
    for view in settings.views:
        if view.name in tables:
            raise top.document.error(f"{view.name!r} is the name of a table too", ("views", view.name))
        _check_own(view.name, ("views", view.name), top)
    for replica in settings.replicas:
        if replica.of not in known:
            hint = did_you_mean(replica.of, known, most=1, cutoff=0.5) or f"There are {', '.join(known)}"
            why = f"there is no table or view {replica.of!r}"
            raise top.document.error(why, ("replicas", replica.name), "of", hint)
    _check_places(settings, known, top)


def _check_places(settings: PipelineSettings, known: Sequence[str], top: Section) -> None:
    """Refuses what would be written to a place that is taken: by another copy, a table, or the store itself."""
    store = absolute(located(settings.store, settings.folder))
    targets = {f"strandline://{store}#{name}": f"the table or view {name!r}" for name in known}
    for replica in settings.replicas:
        named = f"the replica {replica.name!r}"
        other = targets.setdefault(_table_of_store(located(replica.to, settings.folder)), named)
        if other != named:
            why = f"'to' is that of {other}"
            raise top.document.error(why, ("replicas", replica.name), "to", "Give each copy a place of its own")
    for dump in settings.dumps:
        if absolute(located(dump.to, settings.folder)) == store:
            raise top.document.error(
                "'to' is the store itself", ("dumps", dump.name), "to", "Give dumps a folder of their own"
            )
    if "${" in settings.work:
        raise top.error("'work' has no variables: its path is shown", "work", "Write the path")
    if settings.work == store:
        raise top.error("'work' and 'store' are one folder", "work", f"Leave it out: it is {settings.name}.work then")


def _table_of_store(target: str) -> str:
    """A target, one form for all ways to say a table of a store."""
    place, _, table = target.partition("#")
    if place.startswith("strandline+"):
        return f"strandline://{absolute(place.removeprefix('strandline+'))}#{table}"
    path = place.removeprefix("strandline://")
    return (
        target
        if path == place
        else f"strandline://{absolute(path.removeprefix('/') if path[:2] == '//' else path)}#{table}"
    )


def _check_own(name: str, path: tuple[str, ...], top: Section) -> None:
    if is_own_name(name):
        raise top.document.error(f"{name!r} is kept for what Strandline itself makes", path, hint="Take another name")


def _check_detector(source: SourceSettings, top: Section) -> None:
    """Refuses to annotate what is no table of a database; a variable may hold a URL, and is seen when it is opened."""
    kind = "" if source.reading.options.query else kind_of(source.location)
    if source.detect == "annotated" and kind not in BASE_DIALECTS and not source.location.startswith("${"):
        why = f"only a table of PostgreSQL or SQLite can be annotated, not {source.location}"
        raise top.document.error(why, ("sources", source.name), "detect", 'Say detect = "store", or leave it out')


def _snapshot(top: Section, name: str) -> str:
    pattern: str = top.text("snapshot", SNAPSHOT)
    try:
        first, second = (pattern.format(name=name, step=step, date="2024-01-01") for step in (1, 2))
    except (KeyError, IndexError, ValueError) as error:
        hint = "Use {name}, {step} and {date}, for example night-{step:04}"
        raise top.error(f"'snapshot' is {pattern!r}: {error}", "snapshot", hint) from None
    if first == second:
        raise top.error(f"'snapshot' is {pattern!r}, the same for every step", "snapshot", "Put {step} into it")
    return pattern


def duration_of(value: Any) -> float:
    return duration(value if isinstance(value, str) else f"{value!r}")


def _period(value: Any) -> str | float:
    return value if value in PERIODS else duration_of(value)


def _rule(section: Section) -> str | None:
    section.read("keep", lambda value: parse_rule(str(value)))
    rule: str | None = section.text("keep")
    return rule


def _share_deleted(value: Any) -> float:
    allowed = share(value)
    if allowed >= 1:
        hint = "Write a smaller share, or leave it out"
        raise InputError(f"{value!r} lets every row be deleted: it never stops a step", hint=hint)
    return allowed


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{value!r} is no number of rows")
    return value
