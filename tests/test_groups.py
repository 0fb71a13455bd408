"""The tests of Spark run in one process: a second session takes the memory and the time of a machine with two cores."""

from __future__ import annotations

import os

import pytest


def test_xdist_sees_the_group_of_spark(request: pytest.FixtureRequest) -> None:
    """xdist reads groups from the ids of tests, which not every release of pytest lets it write."""
    groups = [item.nodeid.endswith("@spark") for item in request.session.items if "spark" in item.fixturenames]  # type: ignore[attr-defined]
    assert all(groups) or "PYTEST_XDIST_WORKER" not in os.environ
