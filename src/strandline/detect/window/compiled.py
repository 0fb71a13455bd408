"""The compiled loops, loaded when the first of them is called: importing the window loads no numba."""

from __future__ import annotations

from typing import Any


class _Kernels:
    """Stands for the module `kernels`, with its machine code kept where `compiled_cache` says."""

    def __getattr__(self, name: str) -> Any:
        from strandline.relations.signature.compiled_cache import compiled_cache

        with compiled_cache:
            from strandline.detect.window import kernels as loaded
        self.__dict__.update(vars(loaded))
        return getattr(loaded, name)


kernels: Any = _Kernels()
