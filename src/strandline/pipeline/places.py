"""Places as a pipeline file writes them: meant from its folder, with `${NAME}` for values from the environment.

Values are put in when something is opened, and taken out of whatever is said; what is stored shows the name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from strandline.errors import InputError, StrandlineError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILES = ("sqlite", "duckdb", "parquet", "strandline")
_SHORTEST = 3
"""A shorter value says nothing, and taking it out would garble every text."""


class Secrets:
    """The environment as one pipeline uses it. Remembers which values it gave out, to keep them out of messages."""

    def __init__(self, environment: Mapping[str, str] | None = None, folder: str = "") -> None:
        self._folder = folder
        self._environment = os.environ if environment is None else environment
        self._given: dict[str, str] = {}

    def fill(self, text: str, doing: str) -> str:
        """The place that a text means, with its variables' values."""

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name not in self._environment:
                raise InputError(
                    f"the environment variable {name} is not set", doing=doing, hint=f"Set it: export {name}=…"
                )
            self._given[name] = self._environment[name]
            return self._given[name]

        return located(_VARIABLE.sub(value, text), self._folder)

    def scrub(self, text: str) -> str:
        """The text with every value that was given out replaced by its variable's name."""
        for name, value in sorted(self._given.items(), key=lambda one: -len(one[1])):
            if len(value) >= _SHORTEST:
                text = text.replace(value, f"${{{name}}}")
        return text

    def scrubbed(self, error: StrandlineError) -> StrandlineError:
        """The same error without any value."""
        record = {name: self.scrub(text) for name, text in error.to_json().items()}
        return StrandlineError.from_json(record)


def located(text: str, folder: str) -> str:
    """A path or a file's URL as meant from a folder; other URLs as they are."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return os.path.join(folder, os.path.expanduser(text))
    if scheme not in _FILES or not rest.startswith("/") or rest.startswith("//"):
        return text
    return f"{scheme}:///{os.path.join(folder, rest[1:])}"


def is_database(place: str) -> bool:
    """Whether a place is a table of a database that can be a source."""
    return place.startswith(("sqlite:", "postgresql:", "postgres:"))
