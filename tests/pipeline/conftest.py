"""A shop in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.shop import Shop
from tests.replication.servers import postgres

__all__ = ["postgres", "shop"]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)
