"""Process many chunks in many processes and machines, by Dask, Ray or an executor: `map` and `run`."""

from cudakit.scale.results import Results, map, run

__all__ = ["Results", "map", "run"]


def __dir__() -> list[str]:
    return __all__
