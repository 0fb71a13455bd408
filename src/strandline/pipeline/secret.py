"""`${NAME}` in a pipeline file: values from the environment, put in late and taken out of whatever is said."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from strandline.errors import InputError, StrandlineError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SHORTEST = 3
"""A shorter value says nothing, and taking it out would garble every text."""


class Secrets:
    """The environment as one pipeline uses it. Remembers which values it gave out, to keep them out of messages."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._given: dict[str, str] = {}

    def fill(self, text: str, doing: str) -> str:
        """The text with its variables' values."""

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name not in self._environment:
                raise InputError(
                    f"the environment variable {name} is not set", doing=doing, hint=f"Set it: export {name}=…"
                )
            self._given[name] = self._environment[name]
            return self._given[name]

        return _VARIABLE.sub(value, text)

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
