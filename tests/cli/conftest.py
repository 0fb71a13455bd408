"""Commands run in an empty folder of their own."""

from __future__ import annotations

from tests.cli.command import command

__all__ = ["command"]
