"""Doing one thing to many items on all processors: Arrow's work runs beside Python's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results in order, computed on as many threads as there are processors."""
    work: Sequence[T] = list(items)
    if len(work) < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(min(len(work), os.cpu_count() or 1)) as pool:
        futures: list[Future[R]] = [pool.submit(function, item) for item in work]
        return [future.result() for future in futures]
