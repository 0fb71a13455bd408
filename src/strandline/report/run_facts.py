"""What is known of a differential besides its changes: how the schema drifted, what ran and why, what it read, how sure
it is; and the summary of it all as one JSON object.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline._version import __version__
from strandline.changes import Counts, Header
from strandline.engine import byte_count
from strandline.errors import without_passwords
from strandline.report.values import json_value

if TYPE_CHECKING:
    from strandline.differential import DiffRun


@dataclass(frozen=True)
class Retyped:
    """A column whose type changed; `compared` says whether values of both types could still be compared."""

    name: str
    before: str
    after: str
    compared: bool


@dataclass(frozen=True)
class SchemaDrift:
    """Columns added and removed (name and type), retyped ones, and pairs that look like renames (old to new)."""

    added: tuple[tuple[str, str], ...] = ()
    removed: tuple[tuple[str, str], ...] = ()
    retyped: tuple[Retyped, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.retyped)


def schema_drift(header: Header, renames: Mapping[str, str] | None = None) -> SchemaDrift:
    """The drift between the header's two schemas; `renames` are the caller's suggestions, old name to new."""
    old, new = header.old_schema, header.new_schema
    there = set(old.names)
    both = [name for name in new.names if name in there]
    retyped = [
        Retyped(name, str(old.field(name).type), str(new.field(name).type), name not in header.retyped)
        for name in both
        if old.field(name).type != new.field(name).type
    ]
    return SchemaDrift(
        added=tuple((name, str(new.field(name).type)) for name in header.added),
        removed=tuple((name, str(old.field(name).type)) for name in header.removed),
        retyped=tuple(retyped),
        renames=tuple((before, after) for before, after in (renames or {}).items()),
    )


def describe_drift(drift: SchemaDrift) -> list[str]:
    """The drift in sentences, one for each kind."""
    sentences = []
    if drift.added:
        sentences.append(f"Added: {', '.join(f'{name} ({type_})' for name, type_ in drift.added)}.")
    if drift.removed:
        sentences.append(f"Removed: {', '.join(f'{name} ({type_})' for name, type_ in drift.removed)}.")
    for each in drift.retyped:
        verdict = "" if each.compared else ", which can't be compared"
        sentences.append(f"Retyped: {each.name} from {each.before} to {each.after}{verdict}.")
    if drift.renames:
        sentences.append(f"Perhaps renamed: {', '.join(f'{old} → {new}' for old, new in drift.renames)}.")
    return sentences


@dataclass(frozen=True)
class RunFacts:
    """The facts of one differential; None where they do not apply or were not measured.

    `miss_probability` is the probability that this run overlooked an update because two signatures were equal, and
    `runs_to_first_miss` the expected number of such runs up to the first that does; exact algorithms have neither.
    `command`, `when` and `version` say who made the page, and when; `distance`, `evictions` and `useless_pairs` are the
    window algorithm's: how far apart rows of one key lay, rows pushed out of the aging buffers, and delete-insert pairs
    of one key that were found and removed.
    """

    algorithm: str = ""
    reason: str = ""
    runner: str = ""
    seconds: float | None = None
    bytes_read: int | None = None
    bytes_shuffled: int | None = None
    bytes_written: int | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    miss_probability: float | None = None
    runs_to_first_miss: float | None = None
    distance: float | None = None
    evictions: int | None = None
    useless_pairs: int | None = None
    warnings: tuple[str, ...] = ()
    command: str = ""
    when: str = ""
    version: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


def facts_of(run: DiffRun, counts: Counts, command: str = "") -> RunFacts:
    """The facts of a differential that was run just now; `counts` tell how many rows both sides had."""
    notes, unchanged = dict(run.work.notes), counts.unchanged
    more: dict[str, Any] = {"Work items": run.work.items}
    if run.missed is not None:
        more["updates missed by signatures"] = run.missed
    return RunFacts(
        algorithm=run.algorithm,
        reason=run.why,
        runner=run.runner,
        seconds=run.seconds,
        bytes_read=run.work.bytes_read,
        bytes_shuffled=run.work.bytes_shuffled,
        bytes_written=run.work.bytes_written,
        miss_probability=run.miss_probability,
        runs_to_first_miss=run.runs_to_first_miss,
        distance=notes.get("distance"),
        evictions=notes.get("evicted"),
        useless_pairs=notes.get("useless pairs removed"),
        warnings=run.warnings,
        rows_before=None if unchanged is None else unchanged + counts.updated + counts.deleted,
        rows_after=None if unchanged is None else unchanged + counts.updated + counts.inserted,
        command=without_secrets(command),
        when=dt.datetime.now().astimezone().isoformat(" ", "seconds"),
        version=__version__,
        more=more,
    )


_PARAMETER = re.compile(r"((?:password|passwd|pwd|token|secret|key|adbc\.)[\w.]*=)[^&#\s'\"]+", re.IGNORECASE)


def without_secrets(command: str) -> str:
    """A command as a page may show it: passwords in addresses, and values that look like secrets, left out.

    >>> without_secrets("diff postgresql://me:hush@host/db#t x.csv")
    'diff postgresql://me@host/db#t x.csv'
    """
    return _PARAMETER.sub(r"\1…", without_passwords(command))


def facts_json(facts: RunFacts) -> dict[str, Any]:
    """The facts as JSON can hold them; what an algorithm adds under `more` stands beside the others."""
    values = {each.name: getattr(facts, each.name) for each in dataclasses.fields(facts) if each.name != "more"}
    values = {name: _finite(value) for name, value in values.items()}
    values["warnings"] = list(facts.warnings)
    return {**{str(name): json_value(value) for name, value in facts.more.items()}, **values}


def describe_facts(facts: RunFacts) -> list[tuple[str, str]]:
    """The facts that are known, as pairs of words for people."""
    rows = None
    if facts.rows_before is not None or facts.rows_after is not None:
        rows = f"{_whole(facts.rows_before)} before, {_whole(facts.rows_after)} after"
    pairs = [
        ("Command", facts.command),
        ("When", facts.when),
        ("Strandline", facts.version),
        ("Algorithm", facts.algorithm),
        ("Chosen because", facts.reason),
        ("Ran on", facts.runner),
        ("Time", format_seconds(facts.seconds)),
        ("Rows read", rows),
        ("Read", None if facts.bytes_read is None else byte_count(facts.bytes_read)),
        ("Shuffled", None if facts.bytes_shuffled is None else byte_count(facts.bytes_shuffled)),
        ("Written", None if facts.bytes_written is None else byte_count(facts.bytes_written)),
        ("Chance of a missed update", format_probability(facts.miss_probability)),
        ("Runs to the first miss, on average", _runs(facts.runs_to_first_miss)),
        ("Distance between the snapshots", None if facts.distance is None else f"{facts.distance:,.4g}"),
        ("Evicted from the buffers", None if facts.evictions is None else f"{facts.evictions:,} rows"),
        ("Useless pairs removed", None if facts.useless_pairs is None else f"{facts.useless_pairs:,}"),
        *((str(name), str(json_value(value))) for name, value in facts.more.items()),
    ]
    return [(name, text) for name, text in pairs if text]


def format_seconds(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def format_probability(probability: float | None) -> str | None:
    if probability is None:
        return None
    if probability == 0:
        return "0"
    return f"{probability:.2g}" if probability >= 1e-3 else f"{probability:.1e}".replace("e-0", "e-")


def _runs(runs: float | None) -> str | None:
    if runs is None:
        return None
    if runs == float("inf"):
        return "never"
    return f"{runs:,.0f}" if runs < 1e9 else f"{runs:.1e}".replace("e+", "e")


def _whole(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _finite(value: Any) -> Any:
    """JSON has no infinity: an infinite number of runs is null there, as is a NaN."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def summary_json(
    header: Header, facts: RunFacts | None = None, *, renames: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What `--json` prints: counts at the top level, null where they are unknown; always valid JSON.

    `same` is what the exit code tells: types that differ and hold the same values are no difference.

    `columns` has for each value column the updates in which it differs, or is null where the set does not know.
    """
    counts, drift = header.counts, schema_drift(header, renames)
    facts = facts or RunFacts()
    return {
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "unchanged": counts.unchanged,
        "same": not (counts.rows or header.added or header.removed or header.retyped),
        "form": header.form,
        "key": list(header.key),
        "columns": None if counts.columns is None else dict(counts.columns),
        "schema": {
            "added": [{"name": name, "type": type_} for name, type_ in drift.added],
            "removed": [{"name": name, "type": type_} for name, type_ in drift.removed],
            "retyped": [
                {"name": each.name, "before": each.before, "after": each.after, "compared": each.compared}
                for each in drift.retyped
            ],
            "renames": [{"before": before, "after": after} for before, after in drift.renames],
        },
        "before_images": header.knows_before,
        "partial": header.partial,
        "inexact": header.inexact,
        "source": header.source,
        "target": header.target,
        "algorithm": facts.algorithm or None,
        "facts": facts_json(facts),
    }
