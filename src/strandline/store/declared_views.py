"""A set of views declared in any order: each is defined after those that it stands on.

`materialized_view` declares a view by a function that returns its text. One that reads what is not there yet waits for
it; whatever still waits when the store is refreshed is an error, after everything else was refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any
from weakref import WeakKeyDictionary

from strandline.errors import InputError, NotFound
from strandline.store.store import Store
from strandline.store.view import View
from strandline.views import relations_named


@dataclass(frozen=True)
class DeclaredView:
    """What a declaration says: the text, what `store.view` takes beside it, and where copies go."""

    name: str
    sql: str
    options: Mapping[str, Any] = field(default_factory=dict)
    copy_options: Mapping[str, Any] = field(default_factory=dict)

    def define(self, store: Store) -> None:
        view = store.view(self.name, self.sql, **self.options)
        if self.copy_options:
            view.replicate(**self.copy_options)


_waiting: WeakKeyDictionary[Store, dict[str, DeclaredView]] = WeakKeyDictionary()


def materialized_view(
    store: Store,
    *,
    name: str | None = None,
    to: str | None = None,
    target_lag: float | str | None = None,
    **options: Any,
) -> Callable[[Callable[[], str]], View]:
    """Declare a view by a function that returns its SQL: `@materialized_view(store)`.

    The function's name, or `name`, is that of the view, and its docstring is its comment; its name then means the view.
    `options` are those of `store.view`. With `to` a copy of it is kept there, which may be behind by `target_lag`; the
    copy has the view's name. With `stored=True` its rows are kept in the store, and may be behind by `target_lag`.
    Views may be declared in any order: one that reads what is not there yet is defined as soon as a later declaration,
    or `store.refresh()`, finds it.
    """

    if not isinstance(store, Store):
        hint = "Write @sl.materialized_view(store) above the function"
        raise InputError(f"{type(store).__name__} is no store", doing="declaring a view", hint=hint)

    def declare(function: Callable[[], str]) -> View:
        called = name or function.__name__
        sql = function()
        if not isinstance(sql, str):
            raise InputError(
                f"the function gave {type(sql).__name__}", doing=f"declaring view {called!r}", hint="Return its SQL"
            )
        given = {"comment": getdoc(function) or "", **options}
        copy = {} if to is None else {"target": to, "name": called, "target_lag": target_lag}
        if target_lag is not None and to is None:
            if not options.get("stored"):
                hint = "Say to=… or stored=True"
                raise InputError("a target lag is that of a copy", doing=f"declaring view {called!r}", hint=hint)
            given["target_lag"] = target_lag
        _waiting.setdefault(store, {})[called] = DeclaredView(called, sql, given, copy)
        define_waiting(store)
        return View(store, called)

    return declare


def define_waiting(store: Store) -> dict[str, list[str]]:
    """Defines the declared views that can be; those that wait, with what each waits for."""
    declared = _waiting.get(store) or {}
    waiting: dict[str, list[str]] = {}
    for name in order_of_views({one.name: one.sql for one in declared.values()}):
        known = [*store.tables(), *(one.name for one in store.what_ifs()), *(one.name for one in store.views())]
        there = {one.lower() for one in known}
        missing = [one for one in relations_named(declared[name].sql) if one.lower() not in there or one == name]
        if missing:
            waiting[name] = missing
        else:
            declared.pop(name).define(store)
    return waiting


def check_defined(waiting: Mapping[str, list[str]]) -> None:
    """Says what is missing for views that wait."""
    if not waiting:
        return
    missing_views = "; ".join(f"{name} waits for {', '.join(missing)}" for name, missing in waiting.items())
    hint = "Declare those, or create the tables, or withdraw the declaration with store.drop_view"
    circle = _circle(waiting)
    if circle:
        hint = (
            f"{' and '.join(circle)} {'reads itself' if len(circle) == 1 else 'read each other'}: declare one otherwise"
        )
    raise NotFound(missing_views, doing="defining the declared views", hint=hint)


def _circle(waiting: Mapping[str, list[str]]) -> list[str]:
    """The views that wait, in the end, for themselves."""
    reached = {name.lower(): {one.lower() for one in missing} for name, missing in waiting.items()}
    for _ in reached:
        reached = {name: more.union(*(reached.get(one, ()) for one in more)) for name, more in reached.items()}
    return [name for name in waiting if name.lower() in reached[name.lower()]]


def withdraw(store: Store, name: str) -> bool:
    """Forgets a declaration that waits; whether there was one."""
    return _waiting.get(store, {}).pop(name, None) is not None


def order_of_views(texts: Mapping[str, str]) -> list[str]:
    """The names of views by their texts, each after those of them that it stands on."""
    any_case = {name.lower(): name for name in texts}
    ordered: dict[str, None] = {}

    def put(name: str, above: tuple[str, ...]) -> None:
        if name in ordered or name in above:  # views that stand on each other are refused where they are defined
            return
        for relation in relations_named(texts[name]):
            below = relation if relation in texts else any_case.get(relation.lower())
            if below is not None:
                put(below, (*above, name))
        ordered[name] = None

    for name in texts:
        put(name, ())
    return list(ordered)
