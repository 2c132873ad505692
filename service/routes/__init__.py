"""One router per file: ``score``, ``features``, ``model``, ``snapshots``, ``probes``, ``index``."""
