"""A pipeline's file as TOML: its tables, read key by key; what is wrong is named with its line and the nearest key."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from strandline.errors import InputError, NotFound, StrandlineError, did_you_mean

T = TypeVar("T")


def read_sections(path: str | os.PathLike[str]) -> Section:
    """The whole file, as the section that its tables are below."""
    text = _text(path)
    shown = os.fspath(path)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(error), doing=f"reading {shown}", hint="It has to be TOML: see docs/pipeline.md") from None
    return Section(values, (), SettingsFile(shown, text))


@dataclass(frozen=True)
class SettingsFile:
    """The file's text, to find the line of what is wrong."""

    path: str
    text: str

    def line(self, table: Sequence[str], key: str = "") -> int | None:
        """The line (from 1) of a key of a table, or of the table's header; None where neither stands on a line."""
        wanted, header, inside = ".".join(table), None, not table
        for number, line in enumerate(self.text.splitlines(), 1):
            heading = re.match(r"\s*\[+\s*(.+?)\s*\]+\s*(#.*)?$", line)
            if heading:
                name = _unquoted(heading[1])
                inside = name == wanted
                below = f"{name}.".startswith(".".join([*table, key]) + ".")
                header = number if inside or (key and below and header is None) else header
            elif inside and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
                return number
        return header

    def error(self, why: str, table: Sequence[str], key: str = "", hint: str = "") -> InputError:
        line = self.line(table, key)
        where = f"{self.path}{f', line {line}' if line else ''}"
        return InputError(f"{why} in [{'.'.join(table)}]" if table else why, doing=f"reading {where}", hint=hint)


@dataclass(frozen=True)
class Section:
    """One table of the file, read key by key."""

    values: Mapping[str, Any]
    table: tuple[str, ...]
    document: SettingsFile

    def only(self, known: Sequence[str], needed: Sequence[str] = ()) -> None:
        """Refuses a key that is not read, naming the nearest that is, and says which are missing."""
        for name in self.values:
            if name not in known:
                # A required key that is missing is a likelier meaning than any other that looks alike.
                absent = [key for key in needed if key not in self.values]
                meant = did_you_mean(name, absent, most=1) or did_you_mean(name, known, most=1, cutoff=0.5)
                raise self.error(f"there is no key {name!r}", name, meant or f"The keys are {', '.join(known)}")
        for name in needed:
            if name not in self.values:
                raise self.error(f"the key {name!r} is missing", "", f"Add it: {name} = …")

    def error(self, why: str, key: str = "", hint: str = "") -> InputError:
        return self.document.error(why, self.table, key, hint)

    def text(self, key: str, default: str | None = None) -> Any:
        value = self.values.get(key, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self.error(f"{key!r} has to be text, and is {value!r}", key)
        return value

    def names(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self.error(f"{key!r} has to be a name or a list of names, and is {value!r}", key)
        if len(set(value)) < len(value):
            raise self.error(f"{key!r} names a column twice: {value!r}", key)
        return tuple(value)

    def one_of(self, key: str, allowed: Sequence[str]) -> str:
        value = self.values.get(key, allowed[0])
        if value not in allowed:
            hint = did_you_mean(str(value), allowed, most=1) or f"Choose one of {', '.join(allowed)}"
            raise self.error(f"{key!r} is {value!r}", key, hint)
        return str(value)

    def read(self, key: str, reader: Callable[[Any], T]) -> T | None:
        """A key's value as a reader parses it; its error gets the line."""
        if key not in self.values:
            return None
        try:
            return reader(self.values[key])
        except StrandlineError as error:
            raise self.error(f"{key!r}: {error.why}", key, error.hint) from None

    def inner(self, key: str) -> Section:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.error(
                f"{key!r} has to be a table, and is {value!r}", key, f"Write [{'.'.join([*self.table, key])}]"
            )
        return Section(value, (*self.table, key), self.document)

    def each(self, key: str) -> list[tuple[str, Section]]:
        """The tables below `[key.…]`, by name, in the file's order."""
        outer = self.inner(key)
        return [(name, outer.inner(name)) for name in outer.values]


def _text(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        folder, name = os.path.split(os.path.abspath(path))
        beside = os.listdir(folder) if os.path.isdir(folder) else []
        hint = did_you_mean(name, beside, most=1, shown=str) or "Write one: see docs/pipeline.md"
        raise NotFound(f"there is no file {os.fspath(path)}", doing="reading a pipeline", hint=hint) from None
    except IsADirectoryError:
        hint = "Name the pipeline's file; of a store, `strandline tables` and `strandline log` tell how it stands"
        raise InputError("it is a folder", doing=f"reading the pipeline {os.fspath(path)}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"it can't be read: {error}", doing=f"reading {os.fspath(path)}") from None


def _unquoted(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
