"""Records as plain JSON, by the names and types of their fields.

A dataclass that is a `JsonRecord` is stored as an object with one member for each field, in the fields' order. Tuples
become lists and come back as tuples by their annotation; so do mappings, sets (in order), other records, and types with
a form in text (`text_form`). A field that does not count in comparisons is not stored. Reading takes the default of a
field that is absent, and leaves out what it does not know; an absent field without a default is a `KeyError`.

A `JsonRow` is stored as a list of its fields' values, where many stand below each other.

Compact forms, as those of pages and pointers, are written by hand where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_writers: dict[type, Callable[[Any], str]] = {}
_readers: dict[type, Callable[[str], Any]] = {}
_shapes: dict[type, dict[str, tuple[Any, bool]]] = {}


def text_form(type_: type[T], write: Callable[[T], str], read: Callable[[str], T]) -> None:
    """Says how values of a type that JSON does not know are written in records, and read."""
    _writers[type_], _readers[type_] = write, read


class JsonRecord:
    """The base of dataclasses that are stored by name."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in _stored(type(self))}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        values = {}
        for name, (hint, has_default) in _stored(cls).items():
            if name in record or not has_default:
                values[name] = _typed(hint, record[name])
        return cls(**values)


class JsonRow:
    """The base of dataclasses that are stored as rows. Fields that a row does not reach take their defaults."""

    __slots__ = ()

    def to_json(self) -> list[Any]:
        return [_plain(getattr(self, name)) for name in _stored(type(self))]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Self:
        return cls(*(_typed(hint, item) for (hint, _), item in zip(_stored(cls).values(), row, strict=False)))


def _stored(cls: type) -> dict[str, tuple[Any, bool]]:
    """The type of each field that is stored, and whether it has a default; looked up once for each class."""
    known = _shapes.get(cls)
    if known is None:
        hints = get_type_hints(cls)
        known = _shapes[cls] = {
            field.name: (hints[field.name], field.default is not MISSING or field.default_factory is not MISSING)
            for field in fields(cls)
            if field.compare
        }
    return known


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    write = _writers.get(type(value))
    return value if write is None else write(value)


def _typed(hint: Any, value: Any) -> Any:
    """A value from JSON as its annotation wants it; what JSON knows itself is taken as it is."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        wanted = [one for one in inner if one is not NoneType]
        return value if value is None or len(wanted) != 1 else _typed(wanted[0], value)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_typed(kind, item) for kind, item in zip(kinds, value, strict=True))
    if origin is frozenset:
        return frozenset(value)
    if origin is not None and issubclass(origin, Mapping):
        return {name: _typed(inner[1], item) for name, item in dict(value).items()}
    if hasattr(hint, "from_json"):
        return hint.from_json(value)
    read = _readers.get(hint)
    return value if read is None else read(value)
