"""What tests of inputs share with others: the command, and a PostgreSQL server."""

from __future__ import annotations

from tests.cli.command import command
from tests.replication.servers import postgres

__all__ = ["command", "postgres"]
