"""The order between streams, reported and controlled: ``trace()``, ``manual()``, ``foreign(stream, …)``,
``ordered(…)``.
"""

from cudakit.profile.hazards import Dependency, Party, Report, foreign, manual, ordered, trace

__all__ = ["Dependency", "Party", "Report", "foreign", "manual", "ordered", "trace"]
