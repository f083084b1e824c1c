"""Does a higher KL do what tuning does? The runs that higher.toml registers, as law.py makes those of law.toml.

python studies/2026-11-24-kl-law/higher.py run --out runs/higher         make what is missing; then `collect`
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import law  # noqa: E402

if __name__ == "__main__":
    sys.exit(law.main(registered=HERE / "higher.toml", told=__doc__))
