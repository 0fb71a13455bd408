"""What an algorithm gives back: part files of change rows, their counts, and what was done to find them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.changes.header_json import counts_from_json, counts_to_json
from strandline.changes.parts import write_part as write_rows
from strandline.changes.running import PartFile
from strandline.changes.shape import ChangeSet, Counts, Header, total
from strandline.detect.state import State
from strandline.engine import Attempt, Outcome


@dataclass(frozen=True)
class Work:
    """What a run really did, to stand beside what was estimated. Bytes read are those of the inputs on storage."""

    bytes_read: int = 0
    bytes_shuffled: int = 0
    bytes_written: int = 0
    rows_read: int = 0
    items: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __add__(self, other: Work) -> Work:
        return Work(
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_shuffled=self.bytes_shuffled + other.bytes_shuffled,
            bytes_written=self.bytes_written + other.bytes_written,
            rows_read=self.rows_read + other.rows_read,
            items=self.items + other.items,
            notes={**self.notes, **other.notes},
        )


@dataclass(frozen=True)
class Answer:
    """The change rows in Parquet files of the spool. `state` is what the next run may start from, if it was asked."""

    header: Header
    parts: tuple[PartFile, ...]
    work: Work = field(default_factory=Work)
    state: State | None = None


def write_part(changes: ChangeSet, attempt: Attempt, name: str = "changes.parquet") -> dict[str, Any]:
    """Writes change rows, if there are any, and gives the record of it that a kernel returns."""
    counts = changes.header.counts
    if not changes.rows.num_rows:
        return {"counts": counts_to_json(counts), "path": None, "rows": 0, "bytes_written": 0}
    path = attempt.path(name)
    written = write_rows(changes.rows, path)
    return {"counts": counts_to_json(counts), "path": path, "rows": changes.rows.num_rows, "bytes_written": written}


def gather(header: Header, outcomes: Sequence[Outcome], extra: Iterable[Counts] = ()) -> Answer:
    """One answer of the outcomes of kernels that wrote parts."""
    counts = total([*(counts_from_json(outcome.result["counts"]) for outcome in outcomes), *extra])
    return Answer(
        header=replace(header, counts=counts),
        parts=tuple(
            PartFile(outcome.result["path"], outcome.result["rows"], outcome.result["bytes_written"])
            for outcome in outcomes
            if outcome.result["path"]
        ),
        work=work_of(outcomes),
    )


def work_of(outcomes: Sequence[Outcome]) -> Work:
    return Work(
        bytes_read=sum(outcome.bytes for outcome in outcomes),
        rows_read=sum(outcome.rows for outcome in outcomes),
        bytes_written=sum(outcome.result.get("bytes_written", 0) for outcome in outcomes),
        items=len(outcomes),
    )
