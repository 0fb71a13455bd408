"""`for_all`: hypothesis's `given` and `settings` in one typed decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from hypothesis import given, settings
from tests.examples import examples as scaled

F = TypeVar("F", bound=Callable[..., None])


def for_all(examples: int = 100, **strategies: Any) -> Callable[[F], F]:
    def decorate(test: F) -> F:
        return cast(F, settings(max_examples=scaled(examples), deadline=None)(given(**strategies)(test)))

    return decorate
