"""Row signatures (sl2): their computation, their description, checksums of relations."""
