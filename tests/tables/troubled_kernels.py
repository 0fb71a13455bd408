"""Kernels of large writes that meet trouble on purpose; shipped to Spark's workers beside the package."""

from __future__ import annotations

from pathlib import Path

from strandline.engine import Attempt, Result, WorkItem, kernel
from strandline.tables.bulk_pages import load_range, merge_range


@kernel
def merge_fails_once(item: WorkItem, attempt: Attempt) -> Result:
    """Writes its pages, and breaks like a machine at the first attempt."""
    result = merge_range(item, attempt)
    _fail_once(attempt)
    return result


@kernel
def load_fails_once(item: WorkItem, attempt: Attempt) -> Result:
    result = load_range(item, attempt)
    _fail_once(attempt)
    return result


@kernel
def merge_runs_twice(item: WorkItem, attempt: Attempt) -> Result:
    """As when a task is run speculatively beside itself: both write all their pages, one of them counts."""
    merge_range(item, attempt)
    return merge_range(item, attempt)


def _fail_once(attempt: Attempt) -> None:
    mark = Path(attempt.spool) / "failed"
    if attempt.item == 0 and not mark.exists():
        mark.touch()
        raise OSError("the disk hiccuped")
