"""Work items, kernels and their outcomes: what a runner runs.

A **work item** is plain JSON: paths, row groups, a key range, an expression. A **kernel** is a pure, named function
of one work item: it opens its own input, computes with pyarrow and DuckDB, writes its result under a name that
belongs to this attempt alone, and returns plain JSON. Two attempts at one item therefore never clash, and only the
outcome that the runner hands back counts; whatever a lost attempt wrote goes when the spool goes.

A `StrandlineError` inside a kernel is the user's mistake: it becomes part of the outcome, so that Spark neither
retries it nor prints a stack trace. Any other exception is a failing machine: it is raised, and Spark retries.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from strandline.errors import StrandlineError

WorkItem = Mapping[str, Any]
Result = Mapping[str, Any]
LASTING, HANDED_ON = "lasting", "handed-on"
"""The folders of an attempt for files that may stay where they were stored: results, and what later items read."""


@dataclass(frozen=True)
class Attempt:
    """One try at one work item: where it may write and how much memory it may use."""

    spool: str
    item: int
    memory: int = 1 << 30
    token: str = field(default_factory=lambda: secrets.token_hex(6))

    def path(self, name: str) -> str:
        """A path in the spool that no other attempt uses; `name` carries the suffix, as in `rows.parquet`."""
        folder = os.path.join(self.spool, f"{self.item:05d}-{self.token}")
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, name)

    def lasting(self, name: str) -> str:
        """The same for a file whose readers take a URL as well as a path: it may stay where it was stored."""
        return self._below(LASTING, name)

    def handed_on(self, name: str) -> str:
        """The same for one that later work items read: it stays where workers reach it, however small it is."""
        return self._below(HANDED_ON, name)

    def _below(self, folder: str, name: str) -> str:
        place = self.path(folder)
        os.makedirs(place, exist_ok=True)
        return os.path.join(place, name)


Kernel = Callable[[WorkItem, Attempt], Result]
K = TypeVar("K", bound=Kernel)
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What one item came to. `rows` and `bytes` are what it read, for progress and reports."""

    item: int
    result: Result
    rows: int = 0
    bytes: int = 0


def kernel(function: K) -> K:
    """Marks a module-level function as a kernel, so that a worker may find it by name."""
    function.__strandline_kernel__ = True  # type: ignore[attr-defined]
    return function


def kernel_name(function: Kernel) -> str:
    if not getattr(function, "__strandline_kernel__", False):
        raise TypeError(f"{function!r} is not marked with @kernel")
    return f"{function.__module__}:{function.__name__}"


def find_kernel(name: str) -> Kernel:
    """The kernel of that name; refuses functions that are not marked as kernels."""
    module, _, function = name.partition(":")
    named = getattr(importlib.import_module(module), function)
    if not getattr(named, "__strandline_kernel__", False):
        raise TypeError(f"{name} is not a kernel")
    return named  # type: ignore[no-any-return]


def run_attempt(function: Kernel, item: WorkItem, attempt: Attempt) -> dict[str, Any]:
    """One attempt, as the JSON record that travels back from a worker."""
    try:
        result = dict(function(item, attempt))
    except StrandlineError as error:
        return {"item": attempt.item, "error": error.to_json()}
    return {
        "item": attempt.item,
        "rows": int(result.pop("rows_read", 0)),
        "bytes": int(result.pop("bytes_read", 0)),
        "result": result,
    }


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """The outcome in a record made by `run_attempt`; raises the user's error if it holds one."""
    if "error" in record:
        raise StrandlineError.from_json(record["error"])
    return Outcome(record["item"], record["result"], record["rows"], record["bytes"])


def cut_by_bytes(items: Iterable[T], size_of: Callable[[T], int], limit: int) -> list[list[T]]:
    """The items in runs of neighbours of at most `limit` bytes; one that is larger is a run of its own."""
    runs: list[list[T]] = []
    held = 0
    for item in items:
        size = size_of(item)
        if not runs or held + size > limit:
            runs.append([])
            held = 0
        runs[-1].append(item)
        held += size
    return runs


def cut_evenly(items: Sequence[T], size_of: Callable[[T], int], count: int) -> list[list[T]]:
    """The items in at most `count` runs of neighbours of about equal bytes; no run is empty."""
    sizes = [max(size_of(item), 1) for item in items]
    target = sum(sizes) / max(count, 1)
    runs: dict[int, list[T]] = {}
    reached = 0
    for item, size in zip(items, sizes, strict=True):
        # An item belongs to the run in which its middle falls.
        runs.setdefault(int((reached + size / 2) / target), []).append(item)
        reached += size
    return list(runs.values())


def encode(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))
