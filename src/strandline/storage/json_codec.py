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
_Decoder = Callable[[Any], Any] | None
"""How a value from JSON becomes what its annotation wants; None where it is that already."""
_shapes: dict[type, dict[str, tuple[_Decoder, bool]]] = {}


def text_form(type_: type[T], write: Callable[[T], str], read: Callable[[str], T]) -> None:
    """Says how values of a type that JSON does not know are written in records, and read."""
    _writers[type_], _readers[type_] = write, read
    _shapes.clear()  # what was found out of classes before


class JsonRecord:
    """The base of dataclasses that are stored by name."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in _stored(type(self))}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        values = {}
        for name, (decode, has_default) in _stored(cls).items():
            if name in record or not has_default:
                values[name] = record[name] if decode is None else decode(record[name])
        return cls(**values)


class JsonRow:
    """The base of dataclasses that are stored as rows. Fields that a row does not reach take their defaults."""

    __slots__ = ()

    def to_json(self) -> list[Any]:
        return [_plain(getattr(self, name)) for name in _stored(type(self))]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Self:
        stored = zip(_stored(cls).values(), row, strict=False)
        return cls(*(item if decode is None else decode(item) for (decode, _), item in stored))


def _stored(cls: type) -> dict[str, tuple[_Decoder, bool]]:
    """How each field that is stored is read, and whether it has a default; found out once for each class."""
    known = _shapes.get(cls)
    if known is None:
        hints = get_type_hints(cls)
        known = _shapes[cls] = {
            field.name: (
                _decoder(hints[field.name]),
                field.default is not MISSING or field.default_factory is not MISSING,
            )
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


def _decoder(hint: Any) -> _Decoder:
    """How values of an annotation are read."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        wanted = [one for one in inner if one is not NoneType]
        one = _decoder(wanted[0]) if len(wanted) == 1 else None
        return None if one is None else lambda value: None if value is None else one(value)
    if origin is tuple:
        return _tuple_decoder(inner)
    if origin is frozenset:
        return frozenset
    if origin is not None and issubclass(origin, Mapping):
        item = _decoder(inner[1])
        return dict if item is None else lambda value: {name: item(each) for name, each in dict(value).items()}
    read: _Decoder = getattr(hint, "from_json", None)
    return read or _readers.get(hint)


def _tuple_decoder(inner: Sequence[Any]) -> Callable[[Any], Any]:
    if inner[-1] is Ellipsis:
        item = _decoder(inner[0])
        return tuple if item is None else lambda value: tuple(map(item, value))
    items = [_decoder(kind) for kind in inner]
    return lambda value: tuple(one if decode is None else decode(one) for decode, one in zip(items, value, strict=True))
