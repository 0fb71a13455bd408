"""Copies of views: the net difference since a copy's own position (Chao, Diehr and Saharia 1996)."""

from strandline.replication.senders.view.sender import ViewSender, copy_definition

__all__ = ["ViewSender", "copy_definition"]
