"""Annotated base tables: copies kept fresh by differential refresh (Lindsay et al. 1986)."""
