"""What every test shares: one Spark session for the whole run, and Hypothesis without chance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "tests",
    derandomize=True,
    deadline=None,
    max_examples=int(os.environ.get("STRANDLINE_EXAMPLES", "50")),
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of the Spark session go to one worker process: a session costs more than the tests."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of this run, with the engine's sample kernels on its workers."""
    from strandline.engine.session import session

    started = session("local[2]")
    started.addArtifacts(str(Path(__file__).parent / "engine" / "sample_kernels.py"), pyfile=True)
    yield started
    started.stop()
