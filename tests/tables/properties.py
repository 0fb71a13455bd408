"""Hypothesis's `given`, typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis

Test = TypeVar("Test", bound=Callable[..., None])


def given(*strategies: Any, **named: Any) -> Callable[[Test], Test]:
    """`hypothesis.given`, which keeps the type of what it decorates."""
    decorate: Callable[[Test], Test] = hypothesis.given(*strategies, **named)
    return decorate
