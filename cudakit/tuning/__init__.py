"""Tune kernels: find the fastest right variant of a template, keep it, and read and write recorded searches.

- `ck.tune` searches. `Kernel.tuned` makes a `TunedKernel`, which searches at the first call of a size class.
- A search returns a `Tuned` with a `Candidate` for each point that was tried, and reports its `Progress`.
- `Space` is a space of points with restrictions; `Expression` is a restriction as text.
- `replay` searches a `Recorded` space, and returns a `Replay`. `read` takes the JSON of a result, Kernel Tuner's cache
  files and T4. `write_cache` and `write_t4` write them; `read_t1` and `write_t1` are for spaces.
- `records` are the kept results of the cache folder: `Records.export_to` and `Records.import_from` move them.
"""

from __future__ import annotations

from cudakit.tuning.by_size import TunedKernel
from cudakit.tuning.candidate import Candidate
from cudakit.tuning.expression import Expression
from cudakit.tuning.formats import read, read_t1, write_cache, write_t1, write_t4
from cudakit.tuning.kept import Records, records
from cudakit.tuning.recorded import Recorded
from cudakit.tuning.replay import Replay, replay
from cudakit.tuning.space import Space
from cudakit.tuning.tune import Progress
from cudakit.tuning.tuned import Tuned

__all__ = [
    "Candidate", "Expression", "Progress", "Recorded", "Records", "Replay", "Space", "Tuned", "TunedKernel", "read",
    "read_t1", "records", "replay", "write_cache", "write_t1", "write_t4",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
