"""Ports of a local cluster's servers, kept in files from run to run.

Leaves listening to the servers: a port that is free here may be taken before its server starts,
which then ends with that error.

Format: `<name>` in the directory, the port as decimal digits and a newline.
"""

import contextlib
from pathlib import Path

from metadata.store.embedded_ports import free_port, is_free


def kept_port(path: Path) -> int:
    """Return the port in a file if it is free, or else any free port, which the file then has."""
    with contextlib.suppress(OSError, ValueError):
        last = int(path.read_text())
        if last > 0 and is_free(last):
            return last
    port = free_port()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{port}\n")
    return port
