"""Files that earlier releases wrote; they are never made anew."""

from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parent
