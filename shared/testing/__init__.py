"""Public test doubles: they pass the same contract suites as the real things."""
