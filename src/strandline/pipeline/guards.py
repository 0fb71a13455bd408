"""Guards: an extract that looks wrong stops the step before anything is applied, and the message says what was seen."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from strandline.errors import GuardTripped
from strandline.pipeline.detection import SourceChanges
from strandline.pipeline.extracts import Extract
from strandline.pipeline.settings import Guards, SourceSettings
from strandline.relations import read_relation

_SHOWN = 5


def guard_extract(extract: Extract, now: float, *, rows_too: bool = True, accepted: bool = False) -> None:
    """Checks before rows are compared: columns, freshness, number of rows; then, `rows_too`, what needs reading.

    Of an `accepted` extract only that it has the key: nothing could be done without.
    """
    source, guards = extract.source, Guards() if accepted else extract.source.guards
    needed = (*source.key, *guards.required, *(name for names in guards.unique for name in names))
    missing = [name for name in dict.fromkeys(needed) if name not in extract.schema.names]
    if missing:
        columns = ", ".join(extract.schema.names)
        place = f"the key of [sources.{source.name}]" if set(missing) & set(source.key) else ""
        raise _tripped(source, f"{extract.shown} lacks {', '.join(missing)}; its columns are {columns}", place)
    if guards.fresh is not None and extract.taken is not None and now - extract.taken > guards.fresh:
        age = now - extract.taken
        raise _tripped(source, f"{extract.shown} is {_span(age)} old, and {_span(guards.fresh)} are allowed")
    rows = extract.relation.rows
    if guards.rows is not None and rows is not None and rows < guards.rows:
        raise _tripped(source, f"{extract.shown} has {rows:,} rows, and at least {guards.rows:,} are expected")
    for names in guards.unique if rows_too else ():
        _check_unique(extract, names)


def guard_changes(changes: SourceChanges) -> None:
    """Checks once the changes are known: their size against the table as it was."""
    guards, counts, before = changes.source.guards, changes.counts, changes.before
    if not before:
        return
    for what, count, allowed in (
        ("changed", counts.rows, guards.changed),
        ("were deleted", counts.deleted, guards.deleted),
    ):
        if allowed is not None and count / before > allowed:
            seen = f"{counts.inserted:,} inserted, {counts.updated:,} updated, {counts.deleted:,} deleted"
            share = f"{count:,} of {before:,} rows {what} ({count / before:.1%}; allowed are {allowed:.1%})"
            raise _tripped(changes.source, f"{share}: {seen} by {changes.shown}")


def _check_unique(extract: Extract, names: Sequence[str]) -> None:
    rows = read_relation(extract.relation, list(names))
    groups = rows.group_by(list(names)).aggregate([([], "count_all")])
    repeated = groups.filter(pc.greater(groups.column("count_all"), 1))
    if len(repeated):
        shown = [tuple(row[name] for name in names) for row in repeated.slice(0, _SHOWN).to_pylist()]
        values = ", ".join(str(key[0] if len(key) == 1 else key) for key in shown)
        more = f" and {len(repeated) - _SHOWN:,} more" if len(repeated) > _SHOWN else ""
        raise _tripped(extract.source, f"({', '.join(names)}) is not unique in {extract.shown}: {values}{more}")


def _tripped(source: SourceSettings, why: str, place: str = "") -> GuardTripped:
    once = "" if place else f"accept it once (strandline run … --accept {source.name}) or "
    place = place or f"[sources.{source.name}.guards]"
    return GuardTripped(
        why,
        doing=f"guarding the source {source.name!r}",
        hint=f"Nothing was applied. Look at the extract; if it is right, {once}change {place}",
    )


def _span(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
