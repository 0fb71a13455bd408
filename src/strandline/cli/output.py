"""What commands print, and the options that several of them share: one JSON object on standard output, words and tables
for people, errors on standard error.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import functools
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.engine import MASTER_VARIABLE, is_quiet, set_quiet
from strandline.errors import shortened

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from strandline.changes import Changes
    from strandline.report import RunFacts


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


def answer(record: object, words: str, *, as_json: bool) -> int:
    """What a command that went well has to tell, to a program or to a person; and its exit code."""
    if as_json:
        emit_json(record)
    else:
        say(words)
    return 0


def complain(words: str) -> None:
    """Words that nothing silences: what went wrong."""
    sys.stderr.write(words.rstrip() + "\n")


def span(seconds: float | None) -> str | None:
    """A length of time for people, in its largest unit."""
    if seconds is None:
        return None
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def console() -> Console:
    """Where tables are drawn: standard output, coloured only on a terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def draw_rows(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]], *, longest: int | None = None) -> None:
    """A table of values, cut to a length if one is given; nulls are drawn as a dim dash so that they differ from empty
    text. Where the columns don't fit beside each other, the widest one is folded; where that is not enough, they stand
    below each other, row by row.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [
        [Text("–", style="dim") if value is None else Text(_cell(value, longest)) for value in row] for row in rows
    ]
    screen = console()
    widths = [max([cell_width(name), *(row[place].cell_len for row in cells)]) for place, name in enumerate(names)]
    folded = widths.index(max(widths)) if widths else -1
    frame, widest = 3 * len(names) + 1, max(widths, default=0)
    least = frame + sum(widths) - widest + min(widest, FOLDED)
    if len(names) > 2 and least > screen.width:
        _draw_below(title, names, cells)
        return
    table = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold")
    for place, name in enumerate(names):
        table.add_column(Text(name), overflow="fold", no_wrap=len(names) > 2 and place != folded)
    for row in cells:
        table.add_row(*row)
    screen.print(table)


FOLDED = 24
"""The widest column of a table is not folded below that."""


def cell_width(text: str) -> int:
    """The places that a text takes on a terminal."""
    from rich.cells import cell_len

    return cell_len(text)


def _draw_below(title: str, names: Sequence[str], cells: Sequence[Sequence[Text]]) -> None:
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    screen = console()
    if title:
        screen.print(Text(title, style="bold"))
    for number, row in enumerate(cells, start=1):
        screen.print(Rule(Text(f"row {number:,}", style="dim"), align="left", style="dim"))
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(style="bold", overflow="fold")
        table.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            table.add_row(Text(name), cell)
        screen.print(table)


def _cell(value: Any, longest: int | None) -> str:
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    text = text.strip('"') if not isinstance(value, str) else text
    return shortened(text, longest or max(len(text), 1))


F = TypeVar("F", bound=Callable[..., Any])


def telling(function: F) -> F:
    """`--quiet`, `--verbose` and `--json`, which every command has."""

    @click.option("--quiet", is_flag=True, help="No progress and no words beside the result.")
    @click.option("-v", "--verbose", count=True, help="Say what is done while it is done; -vv says more.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
    @functools.wraps(function)
    def wrapped(*args: Any, quiet: bool, verbose: int, **kwargs: Any) -> Any:
        log_to_stderr(verbose)
        set_quiet(quiet=quiet or kwargs["as_json"])
        return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]


def running(function: F) -> F:
    """`--runner` and `--master`, for commands that work on rows, and what every command has."""

    @click.option(
        "--runner",
        type=click.Choice(["auto", "spark", "inline"]),
        default="auto",
        show_default=True,
        help="Where the work runs: on Spark, in this process, or whichever fits the size.",
    )
    @click.option("--master", metavar="URL", help="The Spark master: local[*], spark://host:port or sc://host:port.")
    @telling
    @functools.wraps(function)
    def wrapped(*args: Any, master: str | None, **kwargs: Any) -> Any:
        if master:
            os.environ[MASTER_VARIABLE] = master
        leave_pandas_out()
        return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]


def leave_pandas_out() -> None:
    """Keeps Arrow from importing pandas, where it is installed, at the first value of Python that it meets: it would
    only look for pandas' own null, which no command has. A program that imports pandas itself still gets it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    hidden = _Hidden("pandas")
    sys.meta_path.insert(0, hidden)
    try:
        pa.scalar(0)  # Arrow looks for pandas once in a process
    finally:
        sys.meta_path.remove(hidden)


class _Hidden:
    """Says of one package that it is not installed."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def log_to_stderr(verbose: int) -> None:
    """What the logger `strandline` says, on standard error: -v from INFO on, -vv from DEBUG on. It stays so."""
    if not verbose:
        return
    logger = logging.getLogger("strandline")
    logger.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    if not any(isinstance(each, _Stderr) for each in logger.handlers):
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)


class _Stderr(logging.StreamHandler[Any]):
    """Writes to what standard error is at the time."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


ROW_FORMATS, PAGE_FORMATS = ("csv", "jsonl", "parquet", "arrow"), ("markdown", "sql", "html")
_OUTPUT_OPTIONS = (
    click.option(
        "-o",
        "--out",
        metavar="FILE",
        type=click.Path(allow_dash=True),
        help="Write the changes: .parquet, .arrow, .csv, .jsonl, .md, .sql, .html or .changes; - is standard output.",
    ),
    click.option(
        "--format",
        "out_format",
        type=click.Choice([*ROW_FORMATS, *PAGE_FORMATS]),
        help="The format of --out, whatever its name; without --out, on standard output.",
    ),
    click.option(
        "--layout",
        type=click.Choice(
            ["changes", "column-by-column", "side-by-side", "sparse", "left", "right", "cdf", "debezium"]
        ),
        default="changes",
        show_default=True,
        help="How rows are laid out in --out.",
    ),
    click.option(
        "--append",
        "append_path",
        metavar="FILE.parquet",
        type=click.Path(),
        help="Add the changes to those of earlier runs, with when and between what.",
    ),
    click.option("--sql-table", default="", help="The table that a .sql script changes."),
    click.option("--dialect", default="standard", show_default=True, help="The dialect of a .sql script."),
    click.option("--html", "html_path", type=click.Path(), help="Write a report to open in a browser."),
)
_ROW_OPTIONS = (
    click.option(
        "-o",
        "--out",
        metavar="FILE",
        type=click.Path(allow_dash=True),
        help="Write the rows: .parquet, .arrow, .csv or .jsonl; - is standard output.",
    ),
    click.option(
        "--format",
        "out_format",
        type=click.Choice(ROW_FORMATS),
        help="The format of --out, whatever its name; without --out, on standard output.",
    ),
)


def output_options(function: F) -> F:
    """The options of commands that find changes: where `write_changes` puts them, and how many examples are shown."""
    limit = click.option(
        "--limit", type=click.IntRange(min=0), default=3, show_default=True, help="Examples of each kind to show."
    )
    return writing_options(limit(function))


def writing_options(function: F) -> F:
    """Where `write_changes` puts changes, for commands that have a `--limit` of their own."""
    for option in reversed(_OUTPUT_OPTIONS):
        function = option(function)
    return function


def row_options(function: F) -> F:
    """Where `write_rows` puts the rows that a command gives."""
    for option in reversed(_ROW_OPTIONS):
        function = option(function)
    return function


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` texts as a mapping."""
    values = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE, not {text!r}")
        values[name.strip()] = value
    return values


def takes_stdout(given: Mapping[str, Any], *, as_json: bool, inputs: Sequence[str | None] = ()) -> bool:
    """Whether the rows themselves go to standard output, so that words go elsewhere. Refuses what can't be, and to
    write over `inputs`.
    """
    _check_files(given, inputs)
    taken = given["out"] in ("-", "/dev/stdout") or bool(given["out_format"] and not given["out"])
    if taken and as_json:
        raise click.UsageError("--json and the rows can't both go to standard output: name a file with --out")
    if taken and given["out_format"] in ("parquet", "arrow") and sys.stdout.isatty():
        raise click.UsageError(f"{given['out_format']} is not for a terminal: name a file with --out, or pipe it on")
    return taken


def _check_files(given: Mapping[str, Any], inputs: Sequence[str | None]) -> None:
    """Refuses an output that would replace a file that is read, or another output. Pipes and devices may be shared."""
    taken = {os.path.realpath(path): path for path in inputs if path and os.path.isfile(path)}
    outputs = {"--out": "out", "--html": "html_path", "--append": "append_path"}
    for option, name in outputs.items():
        path = given.get(name)
        if not path or path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        if (place := os.path.realpath(path)) in taken:
            raise click.UsageError(f"{option} {path} would be written over {taken[place]}: name another file")
        taken[place] = f"{path}, which {option} names, too"


def write_changes(
    changes: Changes,
    given: Mapping[str, Any],
    facts: RunFacts | None = None,
    renames: Mapping[str, str] | None = None,
    *,
    otherwise: str = "",
) -> None:
    """Writes the files that a command was asked for: `--out` in its format and layout, `--html`, `--append`.

    A name of `--out` that names no format is refused, or in the format `otherwise`.
    """
    from strandline.report import Out, append_changes, format_of, write_out

    path, format_ = target_of(given)
    if path and not format_ and format_of(path, otherwise) == "changes" and given["layout"] == "changes":
        changes.save(path)
    elif path:
        out = Out(path, format_, given["layout"], given["sql_table"], given["dialect"], given["limit"])
        write_out(changes.header, changes.tables(), out, facts, renames)
    if given["html_path"]:
        page = Out(given["html_path"], "html", limit=given["limit"])
        write_out(changes.header, changes.tables(), page, facts, renames)
    if given["append_path"]:  # last: a run that failed after it would append the same changes when it is done again
        append_changes(changes, given["append_path"], layout=given["layout"])


def target_of(given: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the format of `--out` and `--format`, each empty where it was not said."""
    return given["out"] or ("-" if given["out_format"] else ""), given["out_format"] or ""


def place(out: str) -> str:
    """The name of `--out` in words."""
    return "standard output" if out == "-" else out
