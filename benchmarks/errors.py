class Broken(Exception):
    """Something gave a wrong answer or none: what was measured means nothing, and the bench fails."""
