"""What every test shares: one Spark session for the whole run, and the profile of Hypothesis."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import servers
from tests.examples import DERANDOMIZED, examples
from tests.storage import s3

hypothesis.settings.register_profile(
    "tests",
    derandomize=DERANDOMIZED,
    deadline=None,
    max_examples=examples(50),
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("tests")
os.environ.setdefault("SPARK_SUBMIT_OPTS", servers.BRIEF)
# The processes that tests start, and the next run, would compile this package and the tests each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background with interrupts ignored, and the processes of tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of Spark go to one worker process: a session or a server costs more than the tests."""
    for item in items:
        if {"spark", "cluster", "connect", "own_disks"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="module", autouse=True)
def _frozen_heap() -> None:
    """What stands before the tests of a module is not looked at again when they collect garbage: that took minutes."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of this run, with the engine's sample kernels on its workers."""
    from strandline.engine.spark_session import session

    test = os.environ["PYTEST_CURRENT_TEST"]
    assert "@spark" in test or "PYTEST_XDIST_WORKER" not in os.environ, f"{test} must name the fixture: it has no group"
    started = session("local[2]")
    started.addArtifacts(str(Path(__file__).parent / "engine" / "sample_kernels.py"), pyfile=True)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def object_store() -> Iterator[dict[str, str]]:
    """What servers and their drivers have in their environment to reach an S3, and the bucket that it has.

    Drivers can have it make trouble (`s3.Overloaded`).
    """
    trouble: list[s3.Overloaded] = []
    with s3.bucket(trouble) as name:
        trouble[0].on = False
        settings = {key: os.environ.pop(key) for key in list(os.environ) if key.startswith("AWS_")}
        yield {**settings, "BUCKET": name}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, object_store: dict[str, str]) -> Iterator[servers.Server]:
    """The one standalone cluster of this run, of two workers; all of it reaches the S3."""
    with servers.standalone_cluster(tmp_path_factory.mktemp("cluster"), object_store) as server:
        yield server


@pytest.fixture(scope="session")
def own_disks(request: pytest.FixtureRequest) -> servers.Server:
    """The cluster, where its workers share nothing with the driver but that S3 and the folder that is to be shared."""
    if not servers.can_unshare():
        why = "workers can't have disks of their own here: mount namespaces (unshare --mount) are not permitted"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    found: servers.Server = request.getfixturevalue("cluster")
    return found


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory, object_store: dict[str, str]) -> Iterator[servers.Server]:
    """The one Connect server of this run; it reaches the S3, too."""
    with servers.connect_server(tmp_path_factory.mktemp("connect"), object_store) as server:
        yield server


def pytest_unconfigure() -> None:
    """What was frozen is collected at the end as ever."""
    gc.unfreeze()
