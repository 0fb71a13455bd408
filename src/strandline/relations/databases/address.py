"""Where a table is: `sqlite:///f.db#t`, `duckdb:///f.duckdb#t`, `postgresql://…/db#schema.t`, `parquet:///data/dir`,
`delta:///data/dir`, `iceberg:///data/dir`, `strandline:///shop#t`, `strandline+s3://bucket/shop#t` or, for any
driver of ADBC, `adbc:DRIVER:URI#t`. A name may stand in double quotes, as in SQL: `#"a.b"`, `#schema."t.x"`.

A password in a URL stays in memory: `shown` has none, and is all that ever reaches errors, logs or stored state. A
PostgreSQL URL without a password uses what PostgreSQL's own client finds: `PGPASSWORD`, `PGPASSFILE`, `~/.pgpass`.

`${NAME}` stands for a value of the environment, which is filled in where an address is opened; `shown` keeps the name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from strandline.errors import InputError, StrandlineError
from strandline.values import quoted

KINDS = {
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "parquet": "parquet",
    "delta": "delta",
    "iceberg": "iceberg",
    "postgresql": "postgres",
    "postgres": "postgres",
    "strandline": "store",
    "strandline+s3": "store",
    "adbc": "adbc",
}
SHOWN_KINDS = ("sqlite", "duckdb", "postgresql", "parquet", "delta", "iceberg", "strandline")
FOLDERS = {"parquet": "a folder of Parquet", "delta": "a Delta table", "iceberg": "an Iceberg table"}
"""Kinds of one table each, whose URL names a folder."""
PATHS = ("sqlite", "duckdb", "store", *FOLDERS)
"""Kinds whose URL names a file or a folder; others name a server, and may hold a password."""
DOTTED = ("postgres", "adbc")
"""Kinds in whose names a dot separates a schema from its table."""
QUOTING = ("sqlite", "duckdb", *DOTTED)
_QUOTED = r'"(?:[^"]|"")+"'
_ONE_NAME = re.compile(rf'(?P<table>{_QUOTED}|[^"].*)', re.DOTALL)
_SCHEMA_AND_TABLE = re.compile(rf'(?:(?P<schema>{_QUOTED}|[^"]+)\.)?(?P<table>{_QUOTED}|(?!")[^.]*)', re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DRIVER = re.compile(
    r"adbc:(?P<driver>[a-z][a-z0-9_]*):(?P<scheme>[a-z0-9+.]+://)?((?P<user>[^/:@?]*):(?P<password>[^?]*)@)?"
    r"(?P<rest>[^?]*)(\?(?P<query>.*))?"
)
_SECRET = re.compile("pass|secret|token|key|auth|cred|header", re.IGNORECASE)
"""Options of drivers that hold secrets have such names."""
SHORTEST_SECRET = 3
"""A shorter value is no secret, and removing it would garble every text."""


@dataclass(frozen=True)
class Address:
    """A database or folder, and a table in it.

    `location` is a path, the URL of an object store, or a PostgreSQL URL that may hold a password. `place` tells
    whether two addresses mean the same: it is `shown` with the values of variables; `filled` has these, by name.
    """

    kind: str
    location: str = field(repr=False)
    table: str
    schema: str | None
    shown: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    place: str = field(default="", repr=False)
    filled: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return named_as(self.kind, self.schema, self.table)

    def scrub(self, text: str) -> str:
        """The text without the password and the values of variables, should a driver have put them there."""
        for secret in self.secrets:
            text = text.replace(secret, "…").replace(quote(secret, safe=""), "…")
        return with_names(text, dict(self.filled))


def parse_address(url: str, table: str | None = None) -> Address:
    """The address that a URL means; `table` instead of what stands behind `#`."""
    text, values = fill_variables(url, os.environ, "reading the address of a table")
    try:
        return written_as(_parsed(text, table), url, values, table)
    except InputError as error:
        record = {name: with_names(words, values) for name, words in error.to_json().items()}
        raise StrandlineError.from_json(record) from None


def fill_variables(text: str, environment: Mapping[str, str], doing: str) -> tuple[str, dict[str, str]]:
    """The text with the values of its `${NAME}`, and these by name."""
    values: dict[str, str] = {}
    for name in _VARIABLE.findall(text):
        if name not in environment:
            raise InputError(
                f"the environment variable {name} is not set", doing=doing, hint=f"Set it: export {name}=…"
            )
        values[name] = environment[name]
    return _VARIABLE.sub(lambda variable: values[variable[1]], text), values


def with_names(text: str, values: Mapping[str, str]) -> str:
    """The text with the names of variables for their values."""
    for name, value in sorted(values.items(), key=lambda item: -len(item[1])):
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, f"${{{name}}}")
    return text


def written_as(address: Address, url: str, values: Mapping[str, str], table: str | None = None) -> Address:
    """The address as it was written: what is shown and stored has the names of these variables, not their values."""
    if not values:
        return address
    parts = urlsplit(url)
    shown = re.sub(r"(//[^/@:]*):[^/@]*@", r"\1@", url)
    if parts.scheme in KINDS:
        named = table or unquote(parts.fragment)
        shown = _parts(address.kind, url)[2] + (f"#{named}" if named else "")
    return replace(address, shown=shown, filled=tuple(values.items()))


def same_place(known: str, address: Address) -> bool:
    """Whether a text that was stored means this address; one whose variables are not set here means it by its text."""
    if known == address.shown:
        return True
    try:
        return parse_address(known).place == address.place
    except InputError:
        return False


def kind_of(url: str) -> str:
    """The kind of copy that stands at a URL; empty where a variable has to say. Needs no environment."""
    return KINDS.get(urlsplit(url).scheme, "")


def _parsed(url: str, table: str | None) -> Address:
    parts = urlsplit(url)
    if parts.scheme not in KINDS:
        shown = url if "@" not in url else "…"
        known = ", ".join(f"{scheme}://" for scheme in SHOWN_KINDS)
        raise InputError(
            f"{parts.scheme}:// is not known" if parts.scheme else f"{shown!r} is no URL of a database",
            doing="reading the address of a table",
            hint=f"Use one of {known}, for example sqlite:///orders.db#orders",
        )
    kind = KINDS[parts.scheme]
    named = table or unquote(parts.fragment)
    secrets, location, shown = _parts(kind, url)
    if kind in FOLDERS:
        if named:
            raise InputError(f"{FOLDERS[kind]} is named by its folder and takes no name", doing=f"reading {shown}")
        return Address(kind, location, os.path.basename(location.rstrip("/")), None, shown, place=shown)
    schema, name = _table(named, kind, shown)
    place = f"{shown}#{named_as(kind, schema, name)}"
    return Address(kind, location, name, schema, f"{shown}#{named}", secrets, place)


def _parts(kind: str, url: str) -> tuple[tuple[str, ...], str, str]:
    """The passwords, what the driver takes, and what may be shown."""
    parts = urlsplit(url)
    if kind == "adbc":
        return _of_driver(url)
    if parts.scheme == "strandline+s3":
        # Credentials come from the environment; a URL that holds some is refused when the storage is opened.
        host = parts.netloc.rpartition("@")[2]
        return (), f"s3://{parts.netloc}{parts.path}", f"{parts.scheme}://{host}{parts.path}"
    if kind in PATHS:
        path = unquote(parts.netloc + parts.path)
        if kind in FOLDERS:
            return (), _folder(path, url), f"{kind}://{_folder(path, url)}"
        # sqlite:///f.db is a path relative to the working folder, sqlite:////x/f.db and sqlite:/x/f.db are absolute.
        written_in_full = url.startswith(f"{parts.scheme}://")
        path = path[1:] if path.startswith("/") and not parts.netloc and written_in_full else path
        if not path:
            raise InputError("it names no file", doing=f"reading {url}", hint=f"Say {parts.scheme}:///name")
        return (), path, f"{parts.scheme}:///{path}"
    query = parse_qsl(parts.query, keep_blank_values=True)
    given = [unquote(parts.password or ""), *(value for name, value in query if name == "password")]
    host = parts.netloc.rpartition("@")[2]
    login = parts.username or ""
    login += f":{parts.password}" if _is_variable(parts.password) else ""
    login += "@" if login else ""
    shown_query = [(name, value) for name, value in query if name != "password" or _is_variable(value)]
    open_query = urlencode(shown_query, safe="/${}")
    shown = urlunsplit((parts.scheme, login + host, parts.path, open_query, ""))
    if parts.netloc.count("@") > 1:  # libpq takes the host to begin behind the first one, and looks its name up
        raise InputError("its user or password holds an @", doing=f"reading {shown}", hint="Write it as %40")
    return tuple(filter(None, given)), urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, "")), shown


def _of_driver(url: str) -> tuple[tuple[str, ...], str, str]:
    """`adbc:DRIVER:URI`: what is shown has neither a password nor what follows a `?`, which may be anything."""
    location = url.partition("#")[0]
    parts = _DRIVER.fullmatch(location)
    if parts is None:
        raise InputError("it names no driver", doing="reading the address of a table", hint="Say adbc:DRIVER:URI#table")
    values = [value for name, value in parse_qsl(parts["query"] or "") if _SECRET.search(name)]
    given = [unquote(parts["password"] or ""), *values]
    login = f"{parts['user']}@" if parts["user"] is not None else ""
    shown = f"adbc:{parts['driver']}:{parts['scheme'] or ''}{login}{parts['rest']}"
    return tuple(secret for secret in given if len(secret) >= SHORTEST_SECRET), location, shown


def _is_variable(text: str | None) -> bool:
    return text is not None and _VARIABLE.fullmatch(text) is not None


def _folder(path: str, url: str) -> str:
    """parquet:///data/x is an absolute path, as file:///data/x is; parquet://x is below the working folder."""
    if not path.strip("/"):
        raise InputError(
            "it names no folder",
            doing=f"reading {url}",
            hint="Say {0}:///data/name or {0}://name".format(url.partition(":")[0]),
        )
    return f"/{path.lstrip('/')}" if path.startswith("/") else path


def _table(named: str, kind: str, shown: str) -> tuple[str | None, str]:
    if not named:
        raise InputError("it names no table", doing=f"reading {shown}", hint="Put the table's name behind a #")
    if kind not in QUOTING:
        return None, named
    parts = (_SCHEMA_AND_TABLE if kind in DOTTED else _ONE_NAME).fullmatch(named)
    if parts is None:
        raise InputError(
            f"{named} is no name of a table",
            doing=f"reading {shown}",
            hint='Put a name that has dots or quotes into double quotes, as in SQL: #"a.b", #schema."t.x"',
        )
    schema, name = parts["schema"] if kind in DOTTED else None, parts["table"]
    return _unquoted(schema) if schema else None, _unquoted(name)


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def named_as(kind: str, schema: str | None, table: str) -> str:
    """What stands behind the # for a table; parts that would be read as something else are quoted."""
    if '"' in table or ("." in table and kind in DOTTED):
        table = quoted(table) if kind in QUOTING else table
    if schema and '"' in schema:
        schema = quoted(schema)
    return f"{schema}.{table}" if schema else table
