"""Paths and URLs in a pipeline file: relative to its folder, with `${NAME}` for values from the environment.

Values are filled in when something is opened, and removed from every message; what is stored has the name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from strandline.errors import InputError, StrandlineError
from strandline.relations import (
    FOLDERS,
    Address,
    database_address,
    fill_variables,
    is_spark_table,
    with_names,
    written_as,
)

_FILES = ("sqlite", "duckdb", "strandline")


class Secrets:
    """The environment as one pipeline uses it. Remembers the values it filled in, to keep them out of messages."""

    def __init__(self, environment: Mapping[str, str] | None = None, folder: str = "") -> None:
        self._folder = folder
        self._environment = os.environ if environment is None else environment
        self._filled: dict[str, str] = {}

    def fill(self, text: str, doing: str) -> str:
        """The path or URL that a text means, with its variables' values."""
        filled, values = fill_variables(text, self._environment, doing)
        self._filled |= values
        return located(filled, self._folder)

    def written(self, text: str) -> str:
        """The same place as it may be stored: with the names of variables."""
        filled, _ = fill_variables(text, self._environment, f"reading {text}")
        if located(filled, self._folder) == filled:
            return text
        if "://" in filled and "://" not in text:
            raise InputError(
                "a variable holds a whole URL, and its path is relative",
                doing=f"reading {text}",
                hint="Give an absolute path, or write the URL's beginning here, as sqlite:///${NAME}#table",
            )
        return located(text, self._folder)

    def address(self, text: str, doing: str, query: str | None = None) -> Address:
        """The address that a text means, of a database for a query; what it shows has the names of variables."""
        address = database_address(self.fill(text, doing), query)
        return written_as(address, self.written(text), fill_variables(text, self._environment, doing)[1])

    def scrub(self, text: str) -> str:
        """The text with every value that was filled in replaced by its variable's name."""
        return with_names(text, self._filled)

    def scrubbed(self, error: StrandlineError) -> StrandlineError:
        """The same error without any value."""
        record = {name: self.scrub(text) for name, text in error.to_json().items()}
        return StrandlineError.from_json(record)


def located(text: str, folder: str) -> str:
    """A path or a file's URL relative to a folder; other URLs as they are."""
    scheme, separator, rest = text.partition("://")
    if is_spark_table(text) or scheme.startswith("adbc:"):
        return text
    if not separator:
        return os.path.join(folder, os.path.expanduser(text))
    if scheme in FOLDERS:
        return f"{scheme}://{os.path.join(folder, rest)}"
    if scheme not in _FILES or not rest.startswith("/") or rest.startswith("//"):
        return text
    return f"{scheme}:///{os.path.join(folder, rest[1:])}"
