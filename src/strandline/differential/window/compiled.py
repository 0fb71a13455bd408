"""The compiled loops, loaded when the first of them is called: importing the window loads no numba."""

from __future__ import annotations

from typing import Any

from strandline.errors import extra


class _Kernels:
    """Stands for the module `kernels`, loaded by `compiled_cache`."""

    def __getattr__(self, name: str) -> Any:
        from strandline.values import load_compiled

        with extra("fast", "comparing with the window algorithm"):
            loaded = load_compiled(
                "strandline.differential.window.compiled_loops", "strandline.differential.window.options"
            )
        self.__dict__.update(vars(loaded))
        return getattr(loaded, name)


kernels: Any = _Kernels()
