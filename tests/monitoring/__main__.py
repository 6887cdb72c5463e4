"""`python -m tests.monitoring`: writes the dashboards of `monitoring/dashboards/`."""

import json
from pathlib import Path
from typing import Final

from tests.monitoring.boards import BOARDS
from tests.monitoring.grafana import Board, dashboard

DIRECTORY: Final = Path(__file__).parents[2] / "monitoring"


def file_of(board: Board) -> Path:
    """Return the file of a dashboard."""
    return DIRECTORY / "dashboards" / f"{board.uid}.json"


def text_of(board: Board) -> str:
    """Return the content of its file."""
    return json.dumps(dashboard(board), indent=1) + "\n"


if __name__ == "__main__":
    for board in BOARDS:
        file_of(board).write_text(text_of(board))
