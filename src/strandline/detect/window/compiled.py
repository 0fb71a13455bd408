"""The compiled loops, with their machine code kept where `compiled_cache` says."""

from strandline.relations.signature.compiled_cache import compiled_cache

with compiled_cache:
    from strandline.detect.window import kernels

__all__ = ["kernels"]
