"""Annotated base tables: copies kept fresh by differential refresh (Lindsay et al. 1986)."""

from strandline.detect.annotated.base import Base, base, bases
from strandline.detect.annotated.copy import Copy, Refresh

__all__ = ["Base", "Copy", "Refresh", "base", "bases"]
