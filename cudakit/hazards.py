"""The order between streams, shown and steered: ``trace()``, ``manual()``, ``ordered(stream, after=other)``."""

from cudakit.profile.hazards import Dependency, Party, Report, manual, ordered, trace

__all__ = ["Dependency", "Party", "Report", "manual", "ordered", "trace"]
