"""Schema drift as data: what the two sides' columns have in common, and which new name an old column may have got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.changes.shape import Header
from strandline.detect.question import Input
from strandline.errors import SchemaError
from strandline.relations.comparable import Incomparable, common_type
from strandline.relations.matching import match
from strandline.relations.read import read_scan
from strandline.relations.unequal import unequal

SAMPLE_ROWS = 20_000
LIKENESS = 0.9
"""The share of rows in which an old and a new column must agree to be taken for one that was renamed."""


@dataclass(frozen=True)
class Drift:
    """How the schemas differ. `retyped` columns have other types: those in `incomparable` were not compared."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    retyped: tuple[tuple[str, str, str], ...] = ()
    incomparable: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.added or self.removed or self.retyped)

    def words(self) -> str:
        said = []
        if self.added:
            said.append(f"added: {', '.join(self.added)}")
        if self.removed:
            said.append(f"removed: {', '.join(self.removed)}")
        if self.retyped:
            said.append("retyped: " + ", ".join(f"{name} from {old} to {new}" for name, old, new in self.retyped))
        return "; ".join(said)


def find_drift(old: pa.Schema, new: pa.Schema, header: Header) -> Drift:
    """The difference of two schemas, told by names and types alone."""
    both = [name for name in new.names if name in old.names]
    retyped = [
        (n, str(old.field(n).type), str(new.field(n).type)) for n in both if old.field(n).type != new.field(n).type
    ]
    return Drift(
        added=tuple(name for name in new.names if name not in old.names),
        removed=tuple(name for name in old.names if name not in new.names),
        retyped=tuple(retyped),
        incomparable=header.retyped,
    )


def check_strict(drift: Drift) -> None:
    if drift.any:
        raise SchemaError(
            f"the schemas differ ({drift.words()})",
            doing="comparing with --strict-schema",
            hint="Compare without it to see what changed in the columns that both sides have",
        )


def suggest_renames(old: Input, new: Input, key: Sequence[str], drift: Drift) -> tuple[tuple[str, str], ...]:
    """Pairs of a removed and an added column that agree in nearly all rows of a sample matched by key."""
    pairs = [
        (a, b) for a in drift.removed for b in drift.added if _meet(old.relation.schema, new.relation.schema, a, b)
    ]
    if not pairs or not key:
        return ()
    here = dict(zip(old.side.names, old.side.columns, strict=True))
    there = dict(zip(new.side.names, new.side.columns, strict=True))
    before = _sample(old, [*(here[name] for name in key), *drift.removed])
    after = _sample(new, [*(there[name] for name in key), *drift.added])
    matching = match(before.select([here[name] for name in key]), after.select([there[name] for name in key]))
    if not len(matching.old):
        return ()
    left, right = before.take(pa.array(matching.old)), after.take(pa.array(matching.new))
    found: dict[str, str] = {}
    for a, b in pairs:
        alike = 1 - unequal(left.column(a), right.column(b)).mean()
        informative = left.column(a).null_count < len(left)
        if alike >= LIKENESS and informative and a not in found and b not in found.values():
            found[a] = b
    return tuple(found.items())


def _meet(old: pa.Schema, new: pa.Schema, a: str, b: str) -> bool:
    return not isinstance(common_type(old.field(a).type, new.field(b).type), Incomparable)


def _sample(given: Input, columns: Sequence[str]) -> pa.Table:
    """The first rows of a side, of these columns of its files."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    for scan in given.scans():
        for batch in read_scan(scan, columns):
            batches.append(batch)
            rows += batch.num_rows
            if rows >= SAMPLE_ROWS:
                return pa.Table.from_batches(batches)
    return (
        pa.Table.from_batches(batches)
        if batches
        else pa.schema([given.relation.schema.field(c) for c in columns]).empty_table()
    )
