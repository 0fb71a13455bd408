"""The Spark session: quiet, sized for the machine, with the package on its workers.

`session()` gives the active session if there is one, and otherwise starts one on the master that was asked for,
on `STRANDLINE_MASTER`, or on this machine, once it has found a Java that Spark can run on; where there is none, or
too old a one, it says so. `prepare` makes any session, the user's own included, classic or Connect, ready for
kernels: it ships this package to the workers and asks one of them what it has.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import logging
import marshal
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline._version import __version__
from strandline.engine.duckdb_connections import MIB, machine_memory
from strandline.engine.spark_action import SparkAction, is_connect
from strandline.engine.spool import scratch_folder
from strandline.errors import Cancelled, EngineError, InputError, StrandlineError, extra, is_installed
from strandline.storage import import_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

LEAST_VERSION = 17
HINT = (
    f"Install Java {LEAST_VERSION} or newer (on Debian or Ubuntu: apt-get install openjdk-17-jre-headless; "
    "on macOS: brew install openjdk@17) or point JAVA_HOME at one. "
    "Small work needs no Java: try runner='inline' (--runner inline)"
)


def find_java(environment: Mapping[str, str]) -> str:
    """The `java` that Spark will start; raises `EngineError` if there is none, or if it is too old."""
    home = environment.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environment.get("PATH"))
    where = f"JAVA_HOME={home}" if home else "the PATH"
    if java is None or not os.access(java, os.X_OK):
        raise EngineError(f"no Java was found ({where})", doing="starting Spark", hint=HINT)
    version = java_version(java)
    if version < LEAST_VERSION:
        raise EngineError(
            f"{java} is Java {version}, and Spark needs {LEAST_VERSION} or newer", doing="starting Spark", hint=HINT
        )
    return java


def java_version(java: str) -> int:
    """The major version that a `java` reports: 8 for 1.8.0_292, 17 for 17.0.15."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"{java} does not run: {error}", doing="starting Spark", hint=HINT) from error
    version = re.search(r'version "(\d+)(?:\.(\d+))?', printed)
    if version is None:
        raise EngineError(f"{java} does not tell its version: {printed!r}", doing="starting Spark", hint=HINT)
    major = int(version[1])
    return int(version[2] or 0) if major == 1 else major


MASTER_VARIABLE = "STRANDLINE_MASTER"
SPOOL_SETTING = "spark.strandline.spool"
MASTERS = re.compile(
    r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[.*\]|spark://[^,]+:\d+(,[^,]+:\d+)*|sc://.+|yarn|k8s://.+"
)
WORKERS_NEED = ("pyarrow", "duckdb", "numpy", "sqlglot", "obstore")
"""What kernels import on a worker; numba makes them faster where it is."""

MEMORY = "memory of a task"
ANSWER_SECONDS = 10
"""How long a master may take to take a connection; a Connect server has three times as long to answer."""

KEPT_MILLISECONDS = "1000"
"""How long a worker's Arrow keeps memory that it has freed. At its own ten milliseconds, each work item gets the pages
of the last one anew from the system: of an exchange of 2 x 2 M rows, 195,000 page faults instead of 68,000.
"""

_prepared: dict[str, int] = {}
"""What one task may use on the workers of each session that was prepared, in bytes."""


def session(master: str | None = None, *, spool: str | None = None) -> SparkSession:
    """The Spark session: the active one, or a new quiet one on `master` (default: this machine).

    `spool` is the storage that results travel through where workers see no folder of this machine: an object store's
    prefix, such as `s3://bucket/prefix`.
    """
    active: SparkSession | None = _session_class().getActiveSession()
    if active is None:
        logger.info("starting Spark")
        active = start(master or os.environ.get(MASTER_VARIABLE) or "local[*]")
    if spool is not None:
        active.conf.set(SPOOL_SETTING, spool)
    return prepare(active)


def _session_class() -> type[SparkSession]:
    with extra("spark", "starting Spark"):
        import_whole("pyspark.sql")
        from pyspark.sql import SparkSession

    session_class: type[SparkSession] = SparkSession
    return session_class


def spark_at_hand() -> bool:
    """Whether `auto` may take Spark: a master is named, or a session runs that has more than this machine."""
    if os.environ.get(MASTER_VARIABLE) or os.environ.get("SPARK_REMOTE"):
        return is_installed("pyspark")
    return active_cluster() is not None


def active_cluster() -> SparkSession | None:
    """The session that runs, if it has more than this machine; PySpark is not even loaded to look for it."""
    sql = sys.modules.get("pyspark.sql")
    active: SparkSession | None = None if sql is None else sql.SparkSession.getActiveSession()
    return None if active is None or is_on_this_machine(where(active)) else active


def is_on_this_machine(master: str) -> bool:
    """Whether a master's workers are threads of a JVM here, with no processors and no memory but this machine's."""
    return master == "local" or master.startswith("local[")


def start(master: str) -> SparkSession:
    """Starts a session on `master`; what is wrong with the machine or the master is said in our words."""
    if not MASTERS.fullmatch(master):
        raise InputError(
            f"{master!r} is no Spark master",
            doing="starting Spark",
            hint="Use local[*], spark://host:port for a cluster, or sc://host:port for Spark Connect",
        )
    if master.startswith("spark://"):
        _check_that_somebody_listens(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return _start_connect(master) if master.startswith("sc://") else _start_classic(master)


def _check_that_somebody_listens(master: str) -> None:
    """Refuses the masters of a cluster if none of them listens: Spark would try for minutes, and say less of it."""
    refused = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS):
                return
        except (OSError, OverflowError) as error:
            refused.append(f"{address} ({error})")
    raise EngineError(
        f"nobody listens at {', '.join(refused)}",
        doing=f"starting Spark on {master}",
        hint="Check the address, and that the master runs there (start-master.sh)",
    )


def _start_connect(master: str) -> SparkSession:
    session_class = _session_class()
    try:
        _check_that_it_answers(master)
        builder = session_class.builder.remote(master)
        for name, value in _runtime_settings().items():
            builder = builder.config(name, value)
        started = builder.getOrCreate()
        started.range(1).count()
    except Exception as error:
        raise EngineError(
            f"no Spark Connect server answers at {master}: {spark_reason(error)}",
            doing="starting Spark",
            hint="Check the address, and that the server runs (start-connect-server.sh)",
        ) from error
    return started


def _check_that_it_answers(master: str) -> None:
    """Waits for a Connect server no longer than is sensible; Spark's own tries go on for ten minutes."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(master).toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=3 * ANSWER_SECONDS)
    except grpc.FutureTimeoutError:
        raise TimeoutError(f"no answer within {3 * ANSWER_SECONDS} seconds") from None
    finally:
        channel.close()


def _start_classic(master: str) -> SparkSession:
    session_class = _session_class()
    find_java(os.environ)
    if "SPARK_REMOTE" in os.environ:
        raise InputError(
            f"SPARK_REMOTE is set to {os.environ['SPARK_REMOTE']!r}, but the master asked for is {master!r}",
            doing="starting Spark",
            hint="Unset SPARK_REMOTE, or use that server with --master",
        )
    builder = session_class.builder.master(_with_retries(master)).appName("strandline")
    for name, value in {**_launch_settings(master), **_runtime_settings()}.items():
        builder = builder.config(name, value)
    with tempfile.NamedTemporaryFile(mode="w+", prefix="strandline-spark-", suffix=".log") as log:
        try:
            with _standard_error_to(log.fileno()):
                started = builder.getOrCreate()
        except Exception as error:
            lines = Path(log.name).read_text(errors="replace").strip().splitlines()
            why = lines[-1] if lines and "JAVA_GATEWAY_EXITED" in str(error) else spark_reason(error)
            raise EngineError(
                f"Spark did not start on {master}: {why}",
                doing="starting Spark",
                hint="Check that this is a master of this version of Spark, and that Java works (java -version)",
            ) from error
    return started


def _with_retries(master: str) -> str:
    """Spark gives a local task one attempt unless the master's name says otherwise; a cluster gives it four."""
    named = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{named[1] or 1},4]" if named else master


def _launch_settings(master: str) -> dict[str, str]:
    """What must be known before the JVM starts."""
    quiet = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
    memory = min(max(machine_memory() // MIB // 6, 1024), 8192)
    settings = {
        "spark.driver.memory": f"{memory}m",
        "spark.driver.extraJavaOptions": quiet,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.python.worker.faulthandler.enabled": "true",
        # By TCP an answer of a few bytes waits for an acknowledgement that the other side delays: 40 ms of each task.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.executorEnv.PYTHONHASHSEED": "0",
        "spark.executorEnv.MIMALLOC_PURGE_DELAY": KEPT_MILLISECONDS,
    }
    if master.startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        if "SPARK_LOCAL_DIRS" not in os.environ:
            # Shuffles and spills of a session that is killed go with what else its process leaves.
            settings["spark.local.dir"] = _spark_folder()
    if master.startswith("spark://"):
        # A master that does not answer is given up after this long instead of Spark's two minutes of silence.
        settings["spark.rpc.askTimeout"] = "30s"
    return settings


@functools.cache
def _spark_folder() -> str:
    folder = scratch_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _runtime_settings() -> dict[str, str]:
    return {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }


def prepare(spark: SparkSession) -> SparkSession:
    """Ships this package to the session's workers, once, and checks on one of them that it can run."""
    name = session_name(spark)
    if name not in _prepared:
        spark.addArtifacts(str(package_archive()), pyfile=True)
        worker = ask_worker(spark)
        check_worker(worker, where=where(spark))
        _prepared[name] = int(worker[MEMORY])
    return spark


def worker_memory(spark: SparkSession) -> int:
    """What one task may use on the session's workers, as far as the one that was asked stands for all of them."""
    prepare(spark)
    return _prepared[session_name(spark)]


@functools.cache
def package_archive() -> Path:
    """This package's own source as a zip file for Python's zip importer.

    It stays until this process ends: a classic driver serves it from there to every worker that joins. Compiled code
    goes along, because workers start often and the importer keeps none; another Python takes the source instead.
    """
    folder = Path(scratch_folder())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = Path(__file__).parent.parent
    archive = folder / f"strandline-{__version__}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for path in sorted(package.rglob("*")):
            place = Path("strandline") / path.relative_to(package)
            if path.is_file() and path.suffix in {".py", ".properties"}:
                packed.write(path, place)
            if path.suffix == ".py":
                packed.writestr(str(place.with_suffix(".pyc")), _compiled(path))
    return archive


def _compiled(path: Path) -> bytes:
    """A source file's code as a `.pyc` that is valid whatever its date (PEP 552)."""
    code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
    unchecked = (1).to_bytes(4, "little")
    source: bytes = importlib.util.source_hash(path.read_bytes())
    return importlib.util.MAGIC_NUMBER + unchecked + source + marshal.dumps(code)


def ask_worker(spark: SparkSession) -> dict[str, str]:
    """What one worker has: Python, this package, the libraries that kernels need, and memory for a task."""
    needs, memory = WORKERS_NEED, MEMORY

    # A nested function travels by value, so it runs even where the package can't be imported.
    def report(batches: Any) -> Iterator[Any]:
        import contextlib
        import importlib
        import importlib.metadata
        import sys

        import pyarrow as pa

        def version_of(name: str) -> str:
            # Reading a version is much cheaper than importing; this package has none there: it is a zip file.
            if name == "strandline":
                return str(importlib.import_module("strandline._version").__version__)
            return importlib.metadata.version(name)

        for _ in batches:
            names, versions = ["python"], [f"{sys.version_info.major}.{sys.version_info.minor}"]
            for name in ("strandline", *needs):
                try:
                    version = version_of(name)
                except Exception as error:
                    version = f"missing: {error}"
                names.append(name)
                versions.append(version)
            with contextlib.suppress(ImportError):
                facts = importlib.import_module("strandline.engine.duckdb_connections")
                names.append(memory)
                versions.append(str(facts.task_memory()))
            yield pa.RecordBatch.from_pydict({"name": names, "version": versions})

    def answers() -> list[Any]:
        return list(spark.range(0, 1, 1, 1).mapInArrow(report, "name string, version string").collect())

    try:
        rows = SparkAction(spark, answers, "preparing Spark's workers").run()
    except Cancelled:
        raise
    except Exception as error:
        raise EngineError(
            f"a Spark worker can't run Python with Arrow: {spark_reason(error)}",
            doing="preparing Spark's workers",
            hint=f"Every worker needs Python with {', '.join(WORKERS_NEED)}; set PYSPARK_PYTHON to that Python",
        ) from error
    return {row["name"]: row["version"] for row in rows}


def check_worker(worker: dict[str, str], where: str) -> None:
    """Refuses workers whose Python or libraries differ from this process's in a way that could change results."""
    import importlib.metadata  # fifteen milliseconds, which a command without Spark need not wait for

    here = {"python": f"{sys.version_info.major}.{sys.version_info.minor}", "strandline": __version__}
    here.update({name: importlib.metadata.version(name) for name in WORKERS_NEED})
    wrong = [
        f"{name} is {worker.get(name, 'missing')}, here it is {version}"
        for name, version in here.items()
        if _release(worker.get(name, "missing")) != _release(version)
    ]
    if wrong:
        raise EngineError(
            f"the workers of {where} don't match this process: {'; '.join(wrong)}",
            doing="preparing Spark's workers",
            hint="Give the workers the same environment (docs/spark.md shows how to pack it), "
            "or set PYSPARK_PYTHON to the Python that has it",
        )


def _release(version: str) -> str:
    """Major and minor: what must agree. Whatever is missing keeps its text and so never agrees."""
    return ".".join(version.split(".")[:2])


def session_name(spark: SparkSession) -> str:
    return str(spark.session_id) if is_connect(spark) else spark.sparkContext.applicationId


def where(spark: SparkSession) -> str:
    return "the Connect server" if is_connect(spark) else str(spark.sparkContext.master)


def spark_reason(error: BaseException) -> str:
    """Why Spark failed, without its stack: of the lines that name an error the last of Python's, else what Java's say
    most fully (causes of causes say less and less).
    """
    text = str(error).strip() or type(error).__name__
    named = re.findall(r"^\W*(?:Caused by: )?([\w.]*(?:Error|Exception): .+)$", text, re.MULTILINE)
    python = [line for line in named if not line.startswith(("org.", "java.", "py4j."))]
    java = [re.split(r"(?:[a-z]\w*\.)+\w*(?:Error|Exception): ", line)[-1] for line in named]
    return (python[-1] if python else max(java, key=len, default=text.splitlines()[0]))[:400]


_OF_THE_PLAN = ("21", "22", "23", "42", "P0")
"""The classes of SQLSTATE that speak of data and of what was asked: their values, their types, `raise_error`."""


def spark_error(error: Exception, doing: str, what: str) -> StrandlineError:
    """Spark's failure as one of our errors, without its stack: a mistake of a plan's own, such as a division by zero,
    or else the machine's.
    """
    from pyspark.errors import PySparkException

    state = error.getSqlState() if isinstance(error, PySparkException) else None
    if (state or "").startswith(_OF_THE_PLAN):
        return InputError(
            f"Spark can't compute the DataFrame's rows: {spark_reason(error)}",
            doing=doing,
            hint="Mend the DataFrame's own plan: its show() or count() may fail in the same way",
        )
    return EngineError(
        f"{what}: {spark_reason(error)}",
        doing=doing,
        hint="This is the machine rather than the data: look at memory, disk space and the workers, then try again",
    )


@contextlib.contextmanager
def _standard_error_to(descriptor: int) -> Iterator[None]:
    """Sends file descriptor 2 elsewhere while the JVM starts, so that it inherits the quiet one for life."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(descriptor, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
