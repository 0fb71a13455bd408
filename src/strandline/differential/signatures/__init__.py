"""Signatures kept between runs (sections 3.2 and 3.3): states, and differentials against them."""
