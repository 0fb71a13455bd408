"""`strandline completion`: what a shell needs to complete commands, options and files."""

from __future__ import annotations

import sys

import click

from strandline.cli.output import emit_json
from strandline.cli.stores import json_option

VARIABLE = "_STRANDLINE_COMPLETE"
"""Set by the shell's script when it asks what could come next; click answers."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> int:
    """Prints a script that makes SHELL complete commands, options and files.

    \b
    Examples:
      eval "$(strandline completion bash)"                                     # in ~/.bashrc
      eval "$(strandline completion zsh)"                                      # in ~/.zshrc
      strandline completion fish > ~/.config/fish/completions/strandline.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    script = found(context.find_root().command, {}, "strandline", VARIABLE).source()
    if as_json:
        emit_json({"shell": shell, "script": script})
    else:
        sys.stdout.write(script.strip() + "\n")
    return 0
