"""Real Spark servers on loopback for tests: a standalone cluster and a Connect server.

Their workers run a Python of their own that has what docs/spark.md says and nothing else, this package included: what
reaches them must have been shipped by the session.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strandline.engine.spark_session import WORKERS_NEED

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java that lives a minute: it compiles quickly instead of well, which halves what its start takes."""

_SPARK = importlib.util.find_spec("pyspark")
SPARK_HOME = Path((_SPARK and _SPARK.origin) or "pyspark").resolve().parent
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.speculation.efficiency.enabled": "false",
}
_PACKAGE = Path(__file__).parents[2] / "src"
QUIET = _PACKAGE / "strandline" / "engine" / "log4j2.properties"


class Server:
    """A server and the one process that drives it: a session costs more than most of what is tried on it."""

    def __init__(self, master: str, environment: dict[str, str], shared: Path) -> None:
        self.shared = shared
        """A folder that the server's workers see."""
        self.environment = {**environment, "STRANDLINE_MASTER": master, "PYTHONPATH": str(_PACKAGE)}
        """What a process needs that is to use the server."""
        self._driver = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("driver_process.py"))],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: Path, folder: Path, seconds: float = 600, *, spool: bool = True) -> Any:
        """Runs `main` of a script of the tests with `folder` as its argument and its spool; gives what it gave."""
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        late = threading.Timer(seconds, self._driver.kill)
        late.start()
        print(
            json.dumps({"script": str(script), "folder": str(folder), "spool": spool}),
            file=self._driver.stdin,
            flush=True,
        )
        answer = self._driver.stdout.readline()
        late.cancel()
        assert answer, f"the driver ended, or took longer than {seconds} seconds"
        told = json.loads(answer)
        assert "failed" not in told, told["failed"]
        return told["told"]

    def close(self) -> None:
        assert self._driver.stdin is not None
        self._driver.stdin.close()
        self._driver.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


WITH_THEM = ("numba", "llvmlite", "arro3-core")
"""What docs/spark.md names beside them, and what these libraries need themselves."""


def worker_python(folder: Path) -> Path:
    """A Python that has the libraries that workers need, of this one, and nothing else."""
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for library in (*WORKERS_NEED, *WITH_THEM):
        installed = importlib.metadata.distribution(library)
        for top in {file.parts[0] for file in installed.files or ()} - {".."}:
            (site / top).symlink_to(str(installed.locate_file(top)))
    return folder / "bin" / "python"


def _environment(folder: Path, python: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    return {
        **kept,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "PYSPARK_PYTHON": str(python),
        "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile=file:{QUIET} {BRIEF}",
        "SPARK_SUBMIT_OPTS": BRIEF,
    }


@contextlib.contextmanager
def _process(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{Path(command[0]).name}-{time.monotonic_ns()}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], host: str = "127.0.0.1", seconds: float = 90) -> None:
    pause = threading.Event()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, "the server ended before it answered"
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
            return
        pause.wait(0.1)
    raise AssertionError(f"nothing answers on port {port}")


_OWN_DISK = """
mount --make-rprivate / && mount -t tmpfs tmpfs /mnt || exit 1
mkdir /mnt/shared /mnt/software && mount --bind "$SHARED" /mnt/shared || exit 1
mount --bind "$SOFTWARE" /mnt/software || exit 1
for folder in $HIDDEN; do mount -t tmpfs tmpfs "$folder" || exit 1; done
mkdir -p "$SHARED" "$SOFTWARE" /tmp/work /tmp/scratch && mount --bind /mnt/shared "$SHARED" || exit 1
mount --bind /mnt/software "$SOFTWARE" && cd /tmp/work && exec "$@"
"""
"""A worker that sees but one temporary folder of others, and the packages, which may lie in another. Its own lie over
all of them, in a namespace of its own."""


def _unshare() -> list[str]:
    """The command that gives a process mounts of its own; whoever is not root becomes it in a namespace first."""
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]


def can_unshare() -> bool:
    tried = subprocess.run([*_unshare(), "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


@contextlib.contextmanager
def standalone_cluster(folder: Path, settings: dict[str, str]) -> Iterator[Server]:
    """A master and two workers of one core each, on two addresses: a slow task is run twice on two hosts only.

    Where that is permitted, the workers share nothing with the driver but the server's `shared` folder: on one address
    Spark would read a neighbour's shuffle files from disk. All get `settings` in their environment.
    """
    shared, own = folder.resolve() / "shared", can_unshare()
    environment = {**_environment(folder, worker_python(shared / "python")), **settings}
    port = free_port()
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    with contextlib.ExitStack() as running:
        process = running.enter_context(_process([*master, "--webui-port", str(free_port())], folder, environment))
        _wait_for(port, process)
        workers = []
        for address in ("127.0.0.2", "127.0.0.3"):
            work, page = folder / address, free_port()
            work.mkdir()
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", "--host", address, "--cores", "1"]
            command += ["--memory", "1g", "--work-dir", "/tmp/work" if own else str(work), "--webui-port", str(page)]
            command += [f"spark://127.0.0.1:{port}"]
            inside = {**environment, **(_own_disk(shared) if own else {}), "SPARK_LOCAL_IP": address}
            command = [*_unshare(), "sh", "-c", _OWN_DISK, "sh", *command] if own else command
            workers.append((page, running.enter_context(_process(command, work, inside)), address))
        for worker in workers:
            _wait_for(*worker)
        waiting = "spark.scheduler.m{}RegisteredResources{}"
        both = {"spark.cores.max": "2", waiting.format("in", "Ratio"): "1.0"}  # work begins on both workers
        both[waiting.format("ax", "WaitingTime")] = "120s"
        both["spark.shuffle.io.retryWait"] = "1s"  # what a lost executor kept is not asked for long
        options = " ".join(f"--conf {name}={value}" for name, value in {**SPECULATION, **both}.items())
        options += f" --conf 'spark.executor.extraJavaOptions={BRIEF}' --conf spark.driver.host=127.0.0.1"
        environment["PYSPARK_SUBMIT_ARGS"] = f"{options} pyspark-shell"
        server = Server(f"spark://127.0.0.1:{port}", environment, shared)
        yield running.enter_context(contextlib.closing(server))


def _own_disk(shared: Path) -> dict[str, str]:
    """What a worker's environment says of the places that it has for itself."""
    hidden = {os.path.realpath(place) for place in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")}
    hidden = {place for place in hidden if os.path.isdir(place)}
    outer = [place for place in sorted(hidden) if not any(place.startswith(f"{other}/") for other in hidden)]
    return {
        "HIDDEN": " ".join(outer),
        "SHARED": str(shared),
        "SOFTWARE": sys.prefix,
        "SPARK_LOCAL_DIRS": "/tmp/scratch",
        "TMPDIR": "/tmp",
    }


@contextlib.contextmanager
def connect_server(folder: Path, settings: dict[str, str]) -> Iterator[Server]:
    """A Spark Connect server; it and its driver get `settings` in their environment."""
    environment = {**_environment(folder, worker_python(folder / "python")), **settings}
    port = free_port()
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--driver-java-options", environment["SPARK_DAEMON_JAVA_OPTS"]]
    for name, value in {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
    }.items():
        command += ["--conf", f"{name}={value}"]
    with _process([*command, "spark-internal"], folder, environment) as process:
        _wait_for(port, process)
        with contextlib.closing(Server(f"sc://127.0.0.1:{port}", environment, folder)) as server:
            yield server
