"""File of lines that survive the end of the process which writes them."""

import os
from pathlib import Path


class LineFile:
    """Appends lines to a file; many processes may share it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write_line(self, line: bytes) -> None:
        """Write one complete line, which survives the end of this process."""
        written = os.write(self._descriptor, line)
        assert written == len(line), "a line is one write"

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
