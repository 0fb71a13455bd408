"""Strandline: tables through time."""
