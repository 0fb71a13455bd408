"""Paths and URLs in a pipeline file: relative to its folder, with `${NAME}` for values from the environment.

Values are filled in when something is opened, and removed from every message; what is stored has the name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from strandline.errors import InputError, StrandlineError
from strandline.relations import FOLDERS, is_database_url, is_spark_table

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILES = ("sqlite", "duckdb", "strandline")
_SHORTEST = 3
"""A shorter value is no secret, and removing it would garble every text."""


class Secrets:
    """The environment as one pipeline uses it. Remembers the values it filled in, to keep them out of messages."""

    def __init__(self, environment: Mapping[str, str] | None = None, folder: str = "") -> None:
        self._folder = folder
        self._environment = os.environ if environment is None else environment
        self._filled: dict[str, str] = {}

    def fill(self, text: str, doing: str) -> str:
        """The path or URL that a text means, with its variables' values."""

        def value(variable: re.Match[str]) -> str:
            name = variable[1]
            if name not in self._environment:
                raise InputError(
                    f"the environment variable {name} is not set", doing=doing, hint=f"Set it: export {name}=…"
                )
            self._filled[name] = self._environment[name]
            return self._filled[name]

        return located(_VARIABLE.sub(value, text), self._folder)

    def scrub(self, text: str) -> str:
        """The text with every value that was filled in replaced by its variable's name."""
        for name, value in sorted(self._filled.items(), key=lambda item: -len(item[1])):
            if len(value) >= _SHORTEST:
                text = text.replace(value, f"${{{name}}}")
        return text

    def scrubbed(self, error: StrandlineError) -> StrandlineError:
        """The same error without any value."""
        record = {name: self.scrub(text) for name, text in error.to_json().items()}
        return StrandlineError.from_json(record)


def located(text: str, folder: str) -> str:
    """A path or a file's URL relative to a folder; other URLs as they are."""
    scheme, separator, rest = text.partition("://")
    if is_spark_table(text):
        return text
    if not separator:
        return os.path.join(folder, os.path.expanduser(text))
    if scheme in FOLDERS:
        return f"{scheme}://{os.path.join(folder, rest)}"
    if scheme not in _FILES or not rest.startswith("/") or rest.startswith("//"):
        return text
    return f"{scheme}:///{os.path.join(folder, rest[1:])}"


def is_database(place: str) -> bool:
    """Whether a place is a table of a database that can be a source."""
    return is_database_url(place)
