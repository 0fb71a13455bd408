"""Renders docs/commands.md from the commands themselves: `python tools/commands_page.py > docs/commands.md`."""

from __future__ import annotations

import inspect

import click

from strandline.cli.main import COMMANDS, cli

HEAD = """# The commands

<!-- Written by tools/commands_page.py from the commands' own help; a test compares the two. -->

```
strandline COMMAND [OPTIONS] …
strandline --help · strandline COMMAND --help · strandline --version
```

| exit code | meaning |
|---|---|
| 0 | done; where a command compares: nothing differs |
| 1 | rows or columns differ (`diff`, `changes`, `net`, `whatif changes`), or what a command's help says: damage, … |
| 2 | trouble: nothing was answered, and one paragraph on standard error says why and what to do |
| 130, 143, 129 | stopped by Ctrl-C, by SIGTERM (`timeout`, systemd, …), by SIGHUP; what was begun is cleaned up |
| 141 | who read the output has gone, as `head` does |

Results go to standard output, words about them and progress to standard error. With `--json` standard output holds
exactly one JSON object, also when something went wrong: then it has `error` (the kind), `why`, and where they are known
`doing` and `hint`.

| variable | meaning |
|---|---|
| `STRANDLINE_MASTER` | the Spark master where `--master` does not name one ([spark.md](spark.md)) |
| `STRANDLINE_SPOOL` | the folder for intermediate results; on a cluster one that every worker can write |
| `STRANDLINE_TRACEBACK` | set to 1, shows the stack trace of a mistake in Strandline itself |
| `JAVA_HOME`, `PYSPARK_PYTHON` | Spark's own: the Java to start, the Python of its workers |
"""


def render() -> str:
    """The whole page."""
    context = click.Context(cli, info_name="strandline", **cli.context_settings)
    pages = [HEAD]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        pages.append(_section(click.Context(command, info_name=name, parent=context)))
    return "\n".join(pages)


def _section(context: click.Context, mark: str = "##") -> str:
    command = context.command
    title = command.name if mark == "##" else context.command_path.removeprefix("strandline ")
    lines = [f"{mark} {title}", "", "```", context.command_path + " " + " ".join(_usage(context)), "```", ""]
    words, _, example = inspect.cleandoc(command.help or "").partition("\b\n")
    lines += [words.strip(), ""]
    if example:
        title, _, shown = example.partition("\n")
        lines += [title, "", "```", *(line.removeprefix("  ") for line in shown.splitlines()), "```", ""]
    if isinstance(command, click.Group):
        inner = (click.Context(each, info_name=each.name, parent=context) for each in command.commands.values())
        return "\n".join([*lines, *(_section(each, "###") for each in inner)])
    lines += ["| option | meaning |", "|---|---|"]
    lines += [_row(option, context) for option in command.params if isinstance(option, click.Option)]
    return "\n".join(lines) + "\n"


def _usage(context: click.Context) -> list[str]:
    arguments = [param.make_metavar(context) for param in context.command.params if isinstance(param, click.Argument)]
    return [*arguments, "[OPTIONS]"]


def _row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if not option.is_flag:
        names += f" `{option.make_metavar(context)}`"
    words = (option.help or "").replace("  [default: ", " [default: ")
    if option.show_default and option.default is not None:
        words += f" [default: {option.default}]"
    if option.required:
        words += " [required]"
    return f"| {_cell(names)} | {_cell(words)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(render(), end="")
