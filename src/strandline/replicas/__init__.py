"""Where changes go: copies at remote sites, one protocol for all kinds."""

from strandline.replicas.definition import Definition
from strandline.replicas.message import Envelope, Message, Position, changes_message, load_message, ranges_message
from strandline.replicas.opening import open_replica
from strandline.replicas.replica import Replica
from strandline.replicas.state import State

__all__ = [
    "Definition",
    "Envelope",
    "Message",
    "Position",
    "Replica",
    "State",
    "changes_message",
    "load_message",
    "open_replica",
    "ranges_message",
]
