"""Finding a Java that Spark can run on, and saying clearly when there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from strandline.errors import EngineError

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
    found = re.search(r'version "(\d+)(?:\.(\d+))?', printed)
    if found is None:
        raise EngineError(f"{java} does not tell its version: {printed!r}", doing="starting Spark", hint=HINT)
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major
