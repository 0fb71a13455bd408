"""Where copies are kept: one file for each kind of place, one conformance suite over all."""
