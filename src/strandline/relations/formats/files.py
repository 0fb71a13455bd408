"""The files of a source: found by a path, a folder or a glob, told apart by format, opened as streams of bytes.

A name that begins with `_` or `.` is hidden (`_SUCCESS`, `_temporary`, `.part-0.crc`), unless it is a hive folder such
as `_day=1`. Files come in the order of their paths. Columns that stand in folder names (`day=2024-01-31`) have their
types guessed over all the folders by the rules of `text`, unless given; a column that the files hold themselves is
read from the files.

A format is told by content where it has a mark, else by name: a Parquet file called `x.csv` is read as Parquet. Text
has no mark, so CSV and JSON lines are told by their suffix, and without one by their first line. Text files are
unpacked on the way: gzip, bz2, zstd and lz4, by content.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from strandline.errors import FormatError, InputError, NotFound, SchemaError, did_you_mean, is_broken
from strandline.relations.read_options import ReadOptions
from strandline.storage import check_mark, is_object_url, list_objects, open_version, stat_mark
from strandline.values import convert_text, guess_type, reads_fixed_size_lists

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class DataFile:
    """One file of a source. `hive` holds the text of the `column=value` folders above it; None is null.

    `mark` tells its version, None of a file that never changes, such as one of a Delta table. `sheet` is what is read
    of a workbook; empty for its only one.
    """

    path: str
    bytes: int
    hive: dict[str, str | None] = field(default_factory=dict)
    mark: str | None = None
    sheet: str = ""


HADOOP = ("hdfs", "viewfs", "webhdfs", "dbfs", "maprfs", "wasbs", "adl")
"""File systems that Hadoop's clients reach, and Spark with them."""


def local_path(source: str | os.PathLike[str]) -> str:
    """The absolute path that a path or a `file://` URL means."""
    text = os.fspath(source)
    if "://" not in text:
        return os.path.abspath(os.path.expanduser(text))
    url = urlsplit(text)
    if url.scheme in HADOOP:
        raise InputError(
            f"{url.scheme}:// is read by Spark alone",
            doing=f"reading {text}",
            hint=f"Name the files as Spark does, spark:parquet.`{text}`, or give a DataFrame",
        )
    if url.scheme != "file":
        raise InputError(
            f"the scheme {url.scheme}:// is not supported",
            doing=f"reading {text}",
            hint="Give a local path, a file:// URL, or one of s3://, gs://, az://, abfss:// and https://; of databases "
            "postgresql://, sqlite:// and duckdb://, and adbc:DRIVER:URI#table for any other",
        )
    if url.netloc not in ("", "localhost"):
        raise InputError(f"the host {url.netloc!r} is not this machine", doing=f"reading {text}")
    return os.path.abspath(unquote(text.split("://", 1)[1].removeprefix(url.netloc)))


def find_files(path: str, *, hive: bool = True) -> list[DataFile]:
    """The data files of a path, a folder or a glob; at least one."""
    with reading(path):
        if os.path.isfile(path):
            files = [_data_file(path, os.path.dirname(path), hive=False)]
        elif os.path.isdir(path):
            files = sorted(_inside(path, path, hive=hive), key=lambda file: file.path)
            if not files:
                raise _no_data(path)
        else:
            files = _matching(path, hive=hive)
    check_readable(files)
    return files


def check_readable(files: list[DataFile]) -> None:
    for file in files:
        if not is_object_url(file.path) and not os.access(file.path, os.R_OK):
            raise _forbidden(file.path) if os.path.exists(file.path) else missing(file.path)


@contextmanager
def reading(path: str, what: str = "") -> Iterator[None]:
    """Turns what goes wrong while reading `path` into our errors; a failing disk stays what it is."""
    try:
        yield
    except FileNotFoundError as error:
        raise damaged(path, what, error) if os.path.exists(path) else missing(path) from None
    except PermissionError:
        raise _forbidden(path) from None
    except pa.ArrowNotImplementedError as error:
        raise _beyond_arrow(path, what, error) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowIndexError, pa.ArrowKeyError, UnicodeError) as error:
        foreign = str(error).startswith(_FOREIGN_TYPE)
        raise (_beyond_arrow if foreign else damaged)(path, what, error) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(path, what, error) from error


def damaged(path: str, what: str, error: BaseException) -> FormatError:
    reason = " ".join(str(error).split())[:300]
    if "all lists to be of size" in reason and not reads_fixed_size_lists():
        return FormatError(
            f"PyArrow {pa.__version__} can't read fixed-size lists with nulls from Parquet",
            doing=f"reading {path}",
            hint="Install PyArrow 26 or newer, or write the column as a list of any size",
        )
    return FormatError(
        f"it is not a whole, readable {what or 'data'} file: {reason}",
        doing=f"reading {path}",
        hint=OTHER_ENCODING if isinstance(error, UnicodeError) else _DAMAGED,
    )


_FOREIGN_TYPE = "Invalid storage type for "
"""What Arrow says of an extension type that its writer stored otherwise than Arrow, such as UUIDs in a Delta table."""


def _beyond_arrow(path: str, what: str, error: BaseException) -> FormatError:
    """The error for what may be whole: it has a type, an encoding or a compression that Arrow can't read."""
    return FormatError(
        f"Arrow can't read what this {what or 'data'} file holds: {' '.join(str(error).split())[:300]}",
        doing=f"reading {path}",
        hint="Have it written with a plainer type, encoding or compression",
    )


OTHER_ENCODING = "It is read as UTF-8 unless another encoding is said: --encoding latin-1"
_DAMAGED = "The file may be damaged or still being written; or say what it is: --input-format, in Python format="


def missing(path: str) -> NotFound:
    """The error for a path that is not there, with the names nearest to it."""
    folder, name = os.path.split(path.rstrip(os.sep))
    if not os.path.isdir(folder):
        while folder and not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        return NotFound("there is no such file or folder", doing=f"reading {path}", hint=f"{folder} is there")
    try:
        meant = did_you_mean(name, os.listdir(folder), cutoff=0.5, shown=lambda near: os.path.join(folder, near))
    except OSError:
        meant = ""
    hint = meant or f"See what {folder} holds"
    return NotFound("there is no such file or folder", doing=f"reading {path}", hint=hint)


def _matching(path: str, *, hive: bool) -> list[DataFile]:
    if not glob.has_magic(path):
        raise missing(path)
    root = glob_root(path)
    files: list[DataFile] = []
    for match in sorted(glob.glob(path, recursive=True)):
        if os.path.isdir(match):
            if not path.endswith("**") and not hidden(os.path.basename(match)):
                files.extend(_inside(match, root, hive=hive))
        elif not any(hidden(name) for name in os.path.relpath(match, root).split(os.sep)):
            files.append(_data_file(match, root, hive=hive))
    if not files:
        raise NotFound("no file matches", doing=f"reading {path}", hint=f"See what {root} holds")
    return list({file.path: file for file in files}.values())


def _inside(folder: str, root: str, *, hive: bool) -> Iterator[DataFile]:
    for above, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        folders[:] = sorted(name for name in folders if not hidden(name))
        _check_loops(above, folders)
        for name in sorted(names):
            if not hidden(name):
                yield _data_file(os.path.join(above, name), root, hive=hive)


def glob_root(pattern: str) -> str:
    """The folder below which a pattern finds everything."""
    while glob.has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern


def _check_loops(above: str, folders: list[str]) -> None:
    """Links to folders are followed; one that leads back up would give rows twice."""
    for name in folders:
        if leads_back(above, name):
            link = os.path.join(above, name)
            raise InputError("this link leads back to a folder above it", doing=f"reading {link}", hint="Remove it")


def leads_back(above: str, name: str) -> bool:
    """Whether a folder's entry is a link to that folder or to one above it."""
    here, link = os.path.realpath(above), os.path.join(above, name)
    there = os.path.realpath(link) if os.path.islink(link) else ""
    return bool(there) and os.path.commonpath([here, there]) == there


def _data_file(path: str, root: str, *, hive: bool) -> DataFile:
    if is_broken(path):
        named = path.encode("utf-8", "backslashreplace").decode()
        raise InputError("its name is not UTF-8", doing=f"reading {named}", hint="Rename it, or a folder above it")
    folders = os.path.relpath(os.path.dirname(path), root).split(os.sep)
    stat = os.stat(path)
    values = list(hive_values(folders)) if hive else []
    if len(dict(values)) < len(values):
        raise InputError(
            "two of its folders are of one column",
            doing=f"reading {path}",
            hint="Name the folder below the first, or read with hive=False",
        )
    return DataFile(path, stat.st_size, dict(values), stat_mark(stat))


def hive_values(folders: list[str]) -> Iterator[tuple[str, str | None]]:
    for folder in folders:
        column, equals, value = folder.partition("=")
        if equals and column:
            yield unquote(column), None if value == _NULL_FOLDER else unquote(value)


def hidden(name: str) -> bool:
    return name.startswith((".", "_")) and "=" not in name


def _raise(error: OSError) -> None:
    raise error


def _forbidden(path: str) -> InputError:
    return InputError(
        "permission to read it is denied", doing=f"reading {path}", hint="Ask its owner, or read it as another user"
    )


def _no_data(path: str) -> NotFound:
    try:
        hidden = sorted(os.listdir(path))[:5]
    except OSError:
        hidden = []
    why = f"the folder holds no data, only {', '.join(hidden)}" if hidden else "the folder is empty"
    return NotFound(why, doing=f"reading {path}", hint="Name a folder with data files, or a file")


def open_stream(path: str, mark: str | None = None) -> pa.NativeFile:
    """The unpacked bytes of a file, on disk or at a URL, if it is still the version that `mark` tells."""
    codec = _codec(path)
    if is_object_url(path):
        source = pa.PythonFile(open_version(path, mark)[0], mode="r")
        return source if codec is None else pa.CompressedInputStream(source, codec)
    check_mark(path, mark)
    return pa.input_stream(path, compression=codec)


def check_unchanged(path: str, mark: str | None) -> None:
    """Refuses a file of this machine that was written over while it was read: its rows may be of two states.

    One that is gone was read to its end; objects are read at one version.
    """
    if not is_object_url(path):
        with suppress(FileNotFoundError):
            check_mark(path, mark)


def is_packed(path: str) -> bool:
    """Whether a file can only be read from its beginning."""
    return _codec(path) is not None


_CODECS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_BZ2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # a first block, or the end of an empty file


def _codec(path: str) -> str | None:
    """How a file is packed, by its first bytes."""
    with open_version(path)[0] as file:
        head = file.read(10)
    codec = next((codec for mark, codec in _CODECS.items() if head.startswith(mark)), None)
    return None if codec == "bz2" and head[4:10] not in _BZ2_BLOCKS else codec


def hive_constants(
    files: Sequence[DataFile], held: Sequence[str], options: ReadOptions
) -> tuple[list[dict[str, str | None]], list[pa.Field]]:
    """For each file the constants that its folders give (less the columns `held` in files), and their fields."""
    columns = list(dict.fromkeys(name for file in files for name in file.hive if name not in held))
    if not options.union_by_name:
        for file in files:
            lacking = [name for name in columns if name not in file.hive]
            if lacking:
                raise SchemaError(
                    f"{file.path} is in no folder {lacking[0]}=…, other files are",
                    doing="reading hive folders as one relation",
                    hint="Say --union-by-name to take null for it (in Python union_by_name=True; or hive=False to "
                    "ignore the names of folders)",
                )
    constants = [{name: file.hive.get(name) for name in columns} for file in files]
    given = options.arrow_types()
    fields = [
        pa.field(name, given.get(name) or guess_type([constant[name] for constant in constants])) for name in columns
    ]
    return constants, fields


def constant_value(text: str | None, field: pa.Field) -> pa.Scalar:
    """The typed value of a constant."""
    return convert_text(pa.array([text], pa.string()), field.type, field.name)[0]


def with_constants(
    batch: pa.RecordBatch, constants: Mapping[str, str | None], fields: list[pa.Field]
) -> pa.RecordBatch:
    """The batch with constant columns appended."""
    rows = batch.num_rows
    arrays = [
        pa.nulls(rows, field.type)
        if constants[field.name] is None
        else pa.repeat(constant_value(constants[field.name], field), rows)
        for field in fields
    ]
    if not arrays:
        return batch
    return pa.record_batch([*batch.columns, *arrays], schema=pa.schema([*batch.schema, *fields]))


FORMATS = ("parquet", "csv", "json", "arrow", "delta", "iceberg", "excel")
_ALIASES = {
    "jsonl": "json", "ndjson": "json", "jsonlines": "json", "ipc": "arrow", "feather": "arrow", "tsv": "csv",
    "pq": "parquet", "xlsx": "excel", "xls": "excel", "ods": "excel",
}  # fmt: skip
_SUFFIXES = {
    ".parquet": "parquet", ".parq": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "json",
    ".ndjson": "json", ".json": "json", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".xlsx": "excel", ".xlsm": "excel", ".xlsb": "excel", ".xls": "excel", ".ods": "excel",
}  # fmt: skip
_PACKED = (".gz", ".bz2", ".zst", ".lz4")
DELIMITERS = (",", ";", "\t", "|")


def split_sheet(name: str) -> tuple[str, str]:
    """The workbook and the sheet that `book.xlsx#Sheet` names; of anything else the name, and no sheet.

    >>> split_sheet("book.xlsx#May"), split_sheet("a#b.csv")
    (('book.xlsx', 'May'), ('a#b.csv', ''))
    >>> split_sheet("book.xlsx#No #3")
    ('book.xlsx', 'No #3')
    """
    cuts = [(name[:place], name[place + 1 :]) for place, mark in enumerate(name) if mark == "#"]
    cuts = [(path, sheet) for path, sheet in cuts if _by_name(path) == "excel"]
    if not cuts or os.path.exists(name):
        return name, ""
    return next((cut for cut in cuts if os.path.exists(cut[0])), cuts[0])


def said_format(name: str) -> str:
    """The format that a user's word means."""
    word = name.lower().lstrip(".")
    word = _ALIASES.get(word, word)
    if word not in FORMATS:
        raise InputError(f"unknown format {name!r}", doing="reading a source", hint=f"Say one of {', '.join(FORMATS)}")
    return word


def format_of_folder(path: str) -> str | None:
    """`delta` or `iceberg` for the folder of such a table, on disk or at a URL, else None."""
    if is_object_url(path):
        return _format_of_prefix(path)
    if os.path.isdir(os.path.join(path, "_delta_log")):
        return "delta"
    metadata = os.path.join(path, "metadata")
    if os.path.isdir(metadata) and any(name.endswith(".metadata.json") for name in os.listdir(metadata)):
        return "iceberg"
    return None


def _format_of_prefix(url: str) -> str | None:
    if glob.has_magic(url) or url.startswith(("http://", "https://")) or _by_name(url):
        return None
    root = url.rstrip("/")
    if list_objects(f"{root}/_delta_log/"):
        return "delta"
    named = any(one.url.endswith(".metadata.json") for one in list_objects(f"{root}/metadata/"))
    return "iceberg" if named else None


def format_of_file(path: str) -> str:
    """The format of one file, by its first bytes, else by its name."""
    with reading(path):
        head = _head(path)
    return _by_mark(head, path) or _by_name(path) or _by_text(head) or _unknown(path)


def one_format(files: list[DataFile], where: str) -> str:
    """The format of all the files of a folder or glob; two formats in one relation are an error."""
    first = format_of_file(files[0].path)
    for file in files[1:]:
        # A name that agrees is enough: reading the file will show whether it lies.
        if _by_name(file.path) != first and (other := format_of_file(file.path)) != first:
            raise FormatError(
                f"it mixes formats: {files[0].path} is {first} and {file.path} is {other}",
                doing=f"reading {where}",
                hint="Name the files with a glob, such as folder/*.parquet",
            )
    return first


def sniffed_delimiter(line: str) -> str:
    """The delimiter that cuts a first line, quoted parts aside, into most pieces; a comma where none does."""
    bare = "".join(line.split('"')[::2])
    best = max(DELIMITERS, key=bare.count)
    return best if bare.count(best) else ","


def _head(path: str) -> bytes:
    if is_packed(path):
        with suppress(OSError), open_stream(path) as unpacked:
            return bytes(unpacked.read(4096))
    with open_version(path)[0] as file:
        return file.read(4096)


def _by_mark(head: bytes, path: str) -> str | None:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if head.startswith(b"FEA1"):
        raise FormatError("it is in the old Feather format 1", doing=f"reading {path}", hint="Write it as Feather 2")
    if head.startswith(b"PK\x03\x04") and _by_name(path) != "excel":
        raise FormatError(
            "it is a zip file, or a workbook",
            doing=f"reading {path}",
            hint=f"Unpack it (unzip -p {os.path.basename(path)} | strandline diff - …), or say that it is a workbook: "
            "--input-format excel, in Python format='excel'",
        )
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") and b'"format-version"' in head and path.endswith(".metadata.json"):
        return "iceberg"
    if text.startswith(b"[{") or (text.startswith(b"[") and path.endswith(".json")):
        raise FormatError(
            "it is one JSON array, not JSON lines",
            doing=f"reading {path}",
            hint="Write one object per line: jq -c '.[]'",
        )
    return None


def _by_name(path: str) -> str | None:
    name = os.path.basename(path).lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    if name.endswith(".metadata.json"):
        return "iceberg"
    return _SUFFIXES.get(os.path.splitext(name)[1])


def _by_text(head: bytes) -> str | None:
    text = head.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip().startswith(b"{"):
        return "json"
    line = text.lstrip(b"\r\n").split(b"\n", 1)[0]
    if b"\x00" in head or not any(mark.encode() in line for mark in DELIMITERS):
        return None
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "csv"


def _unknown(path: str) -> str:
    raise FormatError(
        "neither its name nor its content tells its format",
        doing=f"reading {path}",
        hint=f"Say --input-format, in Python format=, one of {', '.join(FORMATS)}",
    )
