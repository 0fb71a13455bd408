"""`strandline`: finds the command, runs it, and turns errors into one readable paragraph; and `strandline completion`.

Exit codes: 0 fine, 1 differences or a check that failed, 2 trouble, 130 Ctrl-C (143 SIGTERM, 129 SIGHUP), 141 a reader
that has gone. With `--json` a failure is a JSON object on standard output too, so that a program that reads it always
finds one. Help and completion load neither Arrow nor Spark.

The signals that ask a command to end are Ctrl-C, what `timeout`, systemd and containers send, and that of a terminal
that goes. While the command works, each is an interrupt as Ctrl-C is in Python: what was begun is cleaned up, and the
exit code tells the signal. Once it has ended, a signal is noted for the exit code and disturbs no cleaning up; a second
one ends the process where it stands. A signal that the caller had ignored stays ignored.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import click

from strandline._version import __version__
from strandline.cli.output import complain, emit_json, log_to_stderr, telling
from strandline.engine import set_quiet
from strandline.errors import Cancelled, StrandlineError, did_you_mean

FAMILIES: dict[str, dict[str, str]] = {
    "Compare": {"diff": "diff", **dict.fromkeys(("show", "apply", "invert", "compose", "net"), "change_sets")},
    "Tables through time": {
        **dict.fromkeys(("create", "load"), "tables"),
        "query": "inspect",
        "changes": "change_sets",
        **dict.fromkeys(("tables", "describe", "alter", "history", "export"), "tables"),
        **dict.fromkeys(("snapshot", "snapshots", "branch", "branches", "drop"), "snapshots"),
        **dict.fromkeys(("log", "space", "check"), "inspect"),
    },
    "Suppose": {"whatif": "whatif"},
    "Keep copies fresh": {
        "view": "view",
        **dict.fromkeys(("base", "replicate", "refresh", "replicas", "forget"), "replication"),
    },
    "Back up": dict.fromkeys(("dump", "restore", "dumps"), "dumps"),
    "Every night": dict.fromkeys(("run", "plan", "status"), "pipeline"),
    "Besides": {**dict.fromkeys(("demo", "bench"), "demo"), "completion": "main"},
}
"""Each command and its file, by what it is for, in the order of the help."""
COMMANDS = {name: file for family in FAMILIES.values() for name, file in family.items()}
TROUBLE = 2
CANCELLED = 130
"""As shells have it for what SIGINT ended."""
NOT_READ = 141
"""As shells have it for what SIGPIPE ended: who read our output has gone."""
TRACEBACK = "STRANDLINE_TRACEBACK"
"""Set, an internal error is shown with its stack trace."""


class Commands(click.Group):
    """The commands by name; the file of a command is imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            hint = did_you_mean(cmd_name, COMMANDS, most=1, shown=str) or f"Choose from {', '.join(COMMANDS)}."
            raise click.UsageError(f"There is no command {cmd_name!r}. {hint}", ctx)
        command: click.Command = getattr(importlib.import_module(f"strandline.cli.{COMMANDS[cmd_name]}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their first sentences, which fit on a line, family by family."""
        longest = max(map(len, COMMANDS))
        for title, names in FAMILIES.items():
            with formatter.section(title):
                commands = {name.ljust(longest): self.get_command(ctx, name) for name in names}
                room = formatter.width - 6 - longest
                formatter.write_dl([(name, one.get_short_help_str(room)) for name, one in commands.items() if one])


SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "token_normalize_func": lambda word: word.replace("_", "-"),  # hyphens and underscores both
}


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(__version__, prog_name="strandline")
@click.option("-v", "--verbose", count=True, help="Say what is done while it is done; -vv says more.")
def cli(verbose: int) -> None:
    """Tables through time: what changed, snapshots, what-ifs, copies kept fresh, dumps; on Spark.

    \b
    Start here:
      strandline diff monday.parquet tuesday.parquet --key id
      strandline COMMAND --help
    """
    set_quiet(quiet=False)
    log_to_stderr(verbose)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: runs a command and exits with its code. Without arguments it is the process's own command."""
    signals = StopSignals()
    if arguments is None:
        signals.taken()
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments), signals)
    except KeyboardInterrupt:  # another one, while the first was told
        code = CANCELLED
    finally:
        signals.ended()
    _leave_unwritten()
    sys.exit(signals.code(code))


def _run(arguments: list[str], signals: StopSignals) -> int:
    """Runs a command, tells its trouble, and gives its code."""
    wants_json = "--json" in arguments
    _open_closed_streams()
    try:
        code = cli.main(arguments, prog_name="strandline", standalone_mode=False, obj=tuple(arguments))
        signals.ended()
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except (click.Abort, KeyboardInterrupt, Cancelled):
        signals.ended()
        _report_trouble({"error": "Cancelled", "why": "stopped by the user"}, "Stopped.", as_json=wants_json)
        code = CANCELLED
    except click.ClickException as error:
        code = _report_trouble(
            {"error": "UsageError", "why": error.format_message()}, _usage(error), as_json=wants_json
        )
    except StrandlineError as error:
        words = str(error)
        code = _report_trouble(error.to_json(), f"strandline: {words[:1].upper()}{words[1:]}", as_json=wants_json)
    except SystemExit as stop:
        # click exits by itself after completing a line, and when a reader has gone, with a 1 that means differences.
        code = stop.code if VARIABLE in os.environ else NOT_READ
    except BrokenPipeError:
        code = NOT_READ
    except OSError as error:
        record = {"error": "StorageError", "why": str(error)}
        code = _report_trouble(record, f"strandline: the machine refused: {error}.", as_json=wants_json)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        record = {"error": "InternalError", "why": f"{type(error).__name__}: {error}"}
        code = _report_trouble(record, f"strandline: {_internal_error(error)}", as_json=wants_json)
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """A stream that the caller closed goes nowhere; else a file that is opened later would get its place."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            _send_nowhere(number)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _leave_unwritten() -> None:
    """What standard output could not take was told; Python would try again at its end, and exit by its own code."""
    try:
        sys.stdout.flush()
    except OSError:
        _send_nowhere(1)


def _send_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


def _internal_error(error: Exception) -> str:
    return (
        f"this should not have happened: {type(error).__name__}: {error}. It is a mistake in Strandline, not yours; "
        f"please report it with what {TRACEBACK}=1 shows."
    )


def _report_trouble(record: dict[str, str], words: str, *, as_json: bool) -> int:
    if as_json:
        with suppress(OSError):  # a full disk, say, which is what the words are about
            emit_json(record)
    complain(words)
    return TROUBLE


def _usage(error: click.ClickException) -> str:
    words = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return words
    words = f"strandline: {words[:1].upper()}{words[1:]}"
    context = getattr(error, "ctx", None)
    if context is not None:
        words += f"\nTry: {context.command_path} --help"
    return words


VARIABLE = "_STRANDLINE_COMPLETE"
"""Set by the shell's script when it asks what could come next; click answers."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@telling
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> int:
    """Prints what makes SHELL complete commands, options and files.

    \b
    Examples:
      eval "$(strandline completion bash)"                                     # in ~/.bashrc
      eval "$(strandline completion zsh)"                                      # in ~/.zshrc
      strandline completion fish > ~/.config/fish/completions/strandline.fish
    """
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    if shell_class is None:
        raise click.UsageError(f"There is no completion for {shell}.", context)
    script = shell_class(context.find_root().command, {}, "strandline", VARIABLE).source()
    if as_json:
        emit_json({"shell": shell, "script": script})
    else:
        sys.stdout.write(script.strip() + "\n")
    return 0


SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
OFFSET = 128
"""What shells add to the number of the signal that ended a command."""


class StopSignals:
    """How the process of one command takes them, from when they are `taken` on."""

    def __init__(self) -> None:
        self._number = 0
        self._ended = self._late = False
        self._taken: list[int] = []

    def taken(self) -> StopSignals:
        """From now on they interrupt the command."""
        if threading.current_thread() is threading.main_thread():
            self._taken = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._set()
        return self

    def ended(self) -> None:
        """The command has come to its end. Handlers that libraries have set meanwhile are replaced."""
        self._ended = True
        self._set()

    def code(self, otherwise: int) -> int:
        """The exit code: of the signal that came, if one did."""
        return OFFSET + self._number if self._number else otherwise

    def _set(self) -> None:
        for number in self._taken:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._late:
            os._exit(OFFSET + number)
        self._number, self._late = number, self._ended
        if not self._ended:
            raise KeyboardInterrupt
