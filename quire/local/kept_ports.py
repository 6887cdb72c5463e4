"""Ports of a local cluster's servers, kept in files from run to run.

Leaves listening to the servers: a port that is free here may be taken before its server starts,
which then ends with that error.

Format: `<name>` in the directory, the port as decimal digits and a newline.
"""

import contextlib
from pathlib import Path

from metadata.store.embedded_ports import free_port, is_free


def last_port(path: Path) -> int:
    """Return the port in a file if it is free; 0 if it is not, or if there is no such file."""
    with contextlib.suppress(OSError, ValueError):
        last = int(path.read_text())
        if is_free(last):
            return last
    return 0


def choose_port(path: Path) -> int:
    """Return the port in a file if it is free, or else any free port."""
    return last_port(path) or free_port()


def keep_port(path: Path, port: int) -> None:
    """Write the port into its file, for the next run."""
    path.write_text(f"{port}\n")
