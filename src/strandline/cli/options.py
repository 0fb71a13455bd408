"""Options that several commands share, and how they reach the engine."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from strandline.engine.progress import set_quiet
from strandline.engine.session import VARIABLE

F = TypeVar("F", bound=Callable[..., Any])


def running(function: F) -> F:
    """`--runner`, `--master`, `--quiet` and `--json`, for commands that work on rows."""

    @click.option(
        "--runner",
        type=click.Choice(["auto", "spark", "inline"]),
        default="auto",
        show_default=True,
        help="Where the work runs: on Spark, in this process, or whichever fits the size.",
    )
    @click.option("--master", metavar="URL", help="The Spark master: local[*], spark://host:port or sc://host:port.")
    @click.option("--quiet", is_flag=True, help="No progress and no words beside the result.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
    @functools.wraps(function)
    def wrapped(*args: Any, master: str | None, quiet: bool, **kwargs: Any) -> Any:
        if master:
            os.environ[VARIABLE] = master
        set_quiet(quiet or kwargs["as_json"])
        return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` texts as a mapping."""
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE, not {text!r}")
        found[name.strip()] = value
    return found
