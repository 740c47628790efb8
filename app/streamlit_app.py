"""Entry of the dashboard: ``roofcast app``, or ``streamlit run app/streamlit_app.py``."""

from __future__ import annotations

import sys
from pathlib import Path

_HOME = str(Path(__file__).resolve().parents[1])
if _HOME not in sys.path:
    sys.path.insert(0, _HOME)

from app.shell import main  # noqa: E402 - found through the line above

main()
