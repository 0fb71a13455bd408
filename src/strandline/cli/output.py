"""What commands print: one JSON object on standard output, words and tables for people, errors on standard error."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from strandline.engine.progress import is_quiet

if TYPE_CHECKING:
    from rich.console import Console


def emit_json(record: object) -> None:
    """One JSON object, readable by any parser: no NaN, no infinities, no bytes."""
    sys.stdout.write(json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """A value as JSON can hold it: what JSON lacks becomes text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)):
        return str(value)
    if isinstance(value, Iterable):
        return [plain(inner) for inner in value]
    return str(value)


def say(words: str) -> None:
    """Words for the person at the terminal, never mixed into what a program reads; none with `--quiet`."""
    if not is_quiet():
        complain(words)


def complain(words: str) -> None:
    """Words that nothing silences: what went wrong."""
    sys.stderr.write(words.rstrip() + "\n")


def console() -> Console:
    """Where tables are drawn: standard output, coloured only on a terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def draw_rows(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table of values; nulls are drawn as a dim dash so that they differ from empty text."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold")
    for name in names:
        table.add_column(Text(name))
    for row in rows:
        table.add_row(*(Text("–", style="dim") if value is None else Text(_cell(value)) for value in row))
    console().print(table)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    text = text.strip('"') if not isinstance(value, str) else text
    return text if len(text) <= 60 else text[:57] + "…"
