"""What runs in a process of its own to be measured there: it says what it found as JSON."""
