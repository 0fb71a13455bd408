"""The errors that Strandline raises, one tree under `StrandlineError`.

    StrandlineError
    ├── InputError            what was asked for can't be done: a file, an option, a name
    │   ├── NotFound          a file, table, snapshot or version that is not there
    │   ├── FormatError       bytes that are not what they should be: damaged, foreign, newer
    │   ├── SqlError          an expression or a query that can't be parsed or typed
    │   └── MissingExtra      a package that is installed only when it is asked for
    ├── SchemaError           columns or types that don't fit
    ├── KeysError             keys that are absent, null or not unique
    ├── ChangesError          a change set that does not fit what it meets
    │   └── NoBeforeImages    the verb needs before images and the change set has none
    ├── StateError            saved signatures that do not fit the request
    ├── GuardTripped          a threshold stopped the work before anything was applied
    ├── EngineError           Spark, Java or a worker: the machine, not the data
    │   └── Cancelled         stopped by the user
    ├── StorageError          the disk or the object store refused
    │   ├── AlreadyExists     put_if_absent met an object
    │   ├── StorageBusy       the lock of a folder was not free in time; says who holds it
    │   ├── SwapLost          compare_and_swap met another value
    │   └── Unanswered        no answer came: what was asked may have happened, or still may
    └── StoreError            what a store of tables refuses
        ├── Conflict          another transaction was first; trying again can help
        │   └── Deadlock      this transaction was ended to free others
        ├── LockTimeout       a table, page or row was not free in time; says who holds it
        ├── SnapshotExpired   a reader came too late: its pages are gone
        ├── Fenced            this process was taken for dead and may no longer write
        ├── InUse             dropping what others stand on
        └── Damaged           a checksum or an invariant does not hold

Every error says what was being done (`doing`), why it failed (`why`) and what to do next (`hint`), and whether
trying again can help (`retryable`). It survives a trip through a Spark worker as plain JSON.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

# Bounded: a long value in an error is no reason to look at each of its places as far as its end.
_PASSWORD = re.compile(r"((?:\w:/{1,2}|adbc:\w{1,99}:)[^/@\s:]{0,99}):[^?\s]{0,999}@")


def without_passwords(text: str) -> str:
    """Text without the passwords of the addresses in it, whether they can be parsed or not.

    >>> without_passwords("reading mysql://me:hush@host/db#t")
    'reading mysql://me@host/db#t'
    """
    return _PASSWORD.sub(r"\1@", text)


class StrandlineError(Exception):
    """The base of every error that Strandline raises. None shows a password that stands in an address."""

    retryable: ClassVar[bool] = False

    def __init__(self, why: str, *, doing: str = "", hint: str = "") -> None:
        why, doing, hint = (text.encode("utf-8", "backslashreplace").decode() for text in (why, doing, hint))
        why = without_passwords(why)
        # What drivers say may quote a whole value: its middle is left out.
        self.why = why if len(why) <= 2_000 else f"{why[:1_000]}…{why[-999:]}"
        self.doing = without_passwords(doing)
        self.hint = without_passwords(hint)
        super().__init__(self.message())

    def message(self) -> str:
        """One readable paragraph: what was being done, why it failed, what to do (below a reason of several lines)."""
        head = f"{self.doing}: {self.why}" if self.doing else self.why
        between = "\n" if "\n" in head else " "
        return f"{_sentence(head)}{between}{_sentence(self.hint)}" if self.hint else _sentence(head)

    def to_json(self) -> dict[str, str]:
        return {"error": type(self).__name__, "why": self.why, "doing": self.doing, "hint": self.hint}

    @staticmethod
    def from_json(record: dict[str, Any]) -> StrandlineError:
        """The error that `to_json` described; an unknown name becomes the base class, never an import."""
        kind = _by_name().get(str(record.get("error")), StrandlineError)
        return kind(
            str(record.get("why", "unknown error")),
            doing=str(record.get("doing", "")),
            hint=str(record.get("hint", "")),
        )


class InputError(StrandlineError):
    """What was asked for can't be done as asked."""


class NotFound(InputError):
    """A file, table, snapshot or version that is not there."""


class FormatError(InputError):
    """Bytes that are not what they should be: damaged, foreign, or of a newer format."""


class SqlError(InputError):
    """An expression or a query that can't be parsed or typed."""


class MissingExtra(InputError):
    """A package that Strandline uses only for this, and that is not installed here."""


class SchemaError(StrandlineError):
    """Columns or types that don't fit."""


class KeysError(StrandlineError):
    """Keys that are absent, null or not unique."""


class ChangesError(StrandlineError):
    """A change set that does not fit what it meets."""


class NoBeforeImages(ChangesError):
    """The verb needs before images and the change set has none."""


class StateError(StrandlineError):
    """Saved signatures that do not fit the request."""


class GuardTripped(StrandlineError):
    """A threshold stopped the work before anything was applied."""


class EngineError(StrandlineError):
    """Spark, Java or a worker failed: the machine, not the data."""


class Cancelled(EngineError):
    """Stopped by the user; nothing was left half-written."""


class StorageError(StrandlineError):
    """The disk or the object store refused."""


class AlreadyExists(StorageError):
    """`put_if_absent` met an object of that name."""


class StorageBusy(StorageError):
    """The lock of a file or a folder was not free in time; the error says who holds it."""

    retryable = True


class SwapLost(StorageError):
    """`compare_and_swap` met another value than the expected one."""

    retryable = True


class Unanswered(StorageError):
    """The store gave no answer: what was asked may have happened, or may still happen."""


class StoreError(StrandlineError):
    """What a store of tables refuses."""


class Conflict(StoreError):
    """Another transaction was first; nothing was changed, and trying again can help."""

    retryable = True


class Deadlock(Conflict):
    """This transaction was ended so that the others could go on."""


class LockTimeout(StoreError):
    """A table, page or row was not free in time; the error says which transaction holds it."""

    retryable = True


class SnapshotExpired(StoreError):
    """A reader came too late: the pages of its state are gone."""


class Fenced(StoreError):
    """This process was taken for dead by another and may no longer write."""


class InUse(StoreError):
    """Dropping what others stand on."""


class Damaged(StoreError):
    """A checksum or an invariant does not hold."""


def is_broken(text: str) -> bool:
    """Whether a text holds half of a character (a lone surrogate), which no file and no database takes."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def did_you_mean(
    name: str, names: Iterable[str], *, most: int = 3, cutoff: float = 0.6, shown: Callable[[str], str] = repr
) -> str:
    """A hint that names what is spelled nearly like `name`, best first; empty when nothing is.

    >>> did_you_mean("prize", ["price", "prices", "state"])
    "Did you mean 'price' or 'prices'?"
    """
    from difflib import get_close_matches  # imported where something failed already: it is slow to load

    names = list(names)
    alike = [one for one in names if one.casefold() == name.casefold()]
    near = [*alike, *(one for one in get_close_matches(name, names, n=most, cutoff=cutoff) if one not in alike)][:most]
    return f"Did you mean {' or '.join(map(shown, near))}?" if near else ""


def shortened(text: str, width: int) -> str:
    """Text of at most `width` characters; what is cut is shown by an ellipsis.

    >>> shortened("a long way", 6)
    'a lon…'
    """
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


EXTRAS = {
    "spark": ("pyspark", "grpc"),
    "fast": ("numba",),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg",),
    "postgres": ("adbc_driver_postgresql", "adbc_driver_manager"),
    "excel": ("python_calamine",),
    "encrypt": ("cryptography",),
}
"""The extras of the distribution, each with the packages that only it brings."""


@contextmanager
def extra(name: str, doing: str) -> Iterator[None]:
    """Around the imports of an extra's packages: one that is missing is an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS[name]:
            raise
        raise MissingExtra(
            f"{package} is not installed", doing=doing, hint=f"Install it with: pip install 'strandline[{name}]'"
        ) from None


def is_installed(package: str) -> bool:
    """Whether a package of an extra is here; nothing is imported."""
    return importlib.util.find_spec(package) is not None


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?:…" or "\n" in text else f"{text}."


def _by_name() -> dict[str, type[StrandlineError]]:
    kinds: dict[str, type[StrandlineError]] = {}
    waiting: list[type[StrandlineError]] = [StrandlineError]
    while waiting:
        kind = waiting.pop()
        kinds[kind.__name__] = kind
        waiting.extend(kind.__subclasses__())
    return kinds
