"""The names of things, each its own type."""

from __future__ import annotations

from typing import NewType

CommitNumber = NewType("CommitNumber", int)
"""The sequence number of a commit batch in one version's chain; the paper's timestamp (section 3.2.2)."""

DomainId = NewType("DomainId", int)
"""An allocation domain (section 3.3): one table. Never used again. Negative: not committed yet."""

LogicalPage = NewType("LogicalPage", int)
"""The number of a logical page within its domain."""

PhysicalPage = NewType("PhysicalPage", str)
"""The storage name of an immutable page or node. Never used again."""

ProcessId = NewType("ProcessId", int)
"""A process that works on the store. Never used again."""

TransactionId = NewType("TransactionId", int)
"""A transaction within one process: greater means younger."""

VersionObject = NewType("VersionObject", str)
"""The storage name of a version's page-table pointer. Never used again, unlike the version's own name."""

CATALOG = DomainId(0)
"""The system domain: its directory maps the names of domains to their numbers."""

NO_DOMAIN = DomainId(-1)
"""Stands where an object belongs to no domain: nodes of the upper tier. Every snapshot holds them."""

EXTENSION = DomainId(-2)
"""Stands where an object is an extension page: no snapshot holds any."""

FIRST_PLACEHOLDER = DomainId(-10)
"""Domains that a transaction creates are numbered from here downwards until they are installed."""

DIRECTORY_ROOT = LogicalPage(0)
"""In every domain, the logical page that holds the root of its directory."""

UNBORN = CommitNumber(-1)
"""The commit number of what no commit has installed yet."""

NEVER = CommitNumber(-1)
"""The infinite past: older than every commit."""
