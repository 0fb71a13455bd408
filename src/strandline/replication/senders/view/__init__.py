"""Copies of views: the net difference since a copy's own position (Chao, Diehr and Saharia 1996)."""
