from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RESULT = DOCS / "performance.json"
"""The run whose numbers the docs tell."""
