"""Files that earlier releases wrote; they are never generated again."""

from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parent
