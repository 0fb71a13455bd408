"""Range modifications: an update by expression that is sent as the statement itself."""
