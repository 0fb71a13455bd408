"""Hypothetical relations: what-if tables over a live base (Woodfill & Stonebraker 1983)."""
