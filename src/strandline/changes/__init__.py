"""The change set: its shape, its algebra, its files."""
