"""Keeping copies elsewhere: one protocol, two senders, one file for each kind of target."""
