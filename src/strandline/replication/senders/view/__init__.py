"""Copies of views: the net difference since a copy's own position (Chao, Diehr and Saharia 1996)."""

from strandline.replication.senders.view.copy import Copy
from strandline.replication.senders.view.delivery import held

__all__ = ["Copy", "held"]
