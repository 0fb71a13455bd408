"""Real Spark servers on loopback for tests: a standalone cluster and a Connect server.

Their workers run a Python of their own that has what docs/spark.md says and nothing else, this package included: what
reaches them must have been shipped by the session.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from strandline.engine.session import WORKERS_NEED

SPARK_HOME = Path(pyspark.__file__).parent
QUIET = Path(__file__).parents[2] / "src" / "strandline" / "engine" / "log4j2.properties"

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java that lives a minute: it compiles quickly instead of well, which halves what its start takes."""


@dataclass(frozen=True)
class Server:
    """Where a server answers, and the environment for a driver of it."""

    master: str
    environment: dict[str, str]

    def run(self, script: Path, folder: Path) -> str:
        """Runs a driver script of the tests with `folder` as its argument; gives what it printed."""
        source = Path(__file__).parents[2] / "src"
        ours = {"STRANDLINE_MASTER": self.master, "PYTHONPATH": str(source), "STRANDLINE_SPOOL": str(folder)}
        done = subprocess.run(
            [sys.executable, str(script), str(folder)],
            env={**self.environment, **ours},
            capture_output=True,
            text=True,
            timeout=300,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


WITH_THEM = ("llvmlite", "arro3-core")
"""What the libraries that workers need need themselves."""


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
        "PYSPARK_SUBMIT_ARGS": f"--conf 'spark.executor.extraJavaOptions={BRIEF}' pyspark-shell",
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


def _wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 90) -> None:
    pause = threading.Event()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, "the server ended before it answered"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        pause.wait(0.1)
    raise AssertionError(f"nothing answers on port {port}")


@contextlib.contextmanager
def standalone_cluster(folder: Path) -> Iterator[Server]:
    """A master and two workers of one core each, on two hosts by name: Spark speculates on another host only."""
    environment = _environment(folder, worker_python(folder / "python"))
    port = free_port()
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    with contextlib.ExitStack() as running:
        process = running.enter_context(_process([*master, "--webui-port", str(free_port())], folder, environment))
        _wait_for(port, process)
        for name, host in (("one", "127.0.0.1"), ("two", "localhost")):
            (folder / name).mkdir()
            worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1"]
            worker += ["--memory", "1g", "--work-dir", str(folder / name), "--webui-port", str(free_port())]
            running.enter_context(_process([*worker, f"spark://127.0.0.1:{port}"], folder / name, environment))
        yield Server(f"spark://127.0.0.1:{port}", environment)


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[Server]:
    """A Spark Connect server."""
    environment = _environment(folder, worker_python(folder / "python"))
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
        yield Server(f"sc://127.0.0.1:{port}", environment)
