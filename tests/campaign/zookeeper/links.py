"""Search for the server that a process is connected to.

Leaves choosing the process to `faults`. Linux lists each connection's ports and inode in
`/proc/net/tcp`, and the inodes that a process has open in `/proc/<pid>/fd`.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

ESTABLISHED: Final = "01"


def connected_port(pid: int, ports: Collection[int]) -> int | None:
    """Return one of the given remote ports to which a process has a connection; None if there is
    none, or the process has ended.
    """
    remote_ports = parse_connections(Path("/proc/net/tcp").read_text())
    for inode in _socket_inodes(pid):
        if remote_ports.get(inode) in ports:
            return remote_ports[inode]
    return None


def parse_connections(table: str) -> dict[int, int]:
    """Return inode -> remote port of the established connections in `/proc/net/tcp`."""
    found: dict[int, int] = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == ESTABLISHED:
            found[int(fields[9])] = int(fields[2].partition(":")[2], 16)
    return found


def _socket_inodes(pid: int) -> list[int]:
    inodes: list[int] = []
    try:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            match = re.fullmatch(r"socket:\[(\d+)\]", str(path.readlink()))
            if match:
                inodes.append(int(match[1]))
    except OSError:  # the process, or one of its connections, has ended
        return inodes
    return inodes
