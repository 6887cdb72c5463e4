"""One bookie of a local cluster, a process with its own directory.

Leaves kills and pauses to `quire.local.local_server`, and the bookie to `quire bookie run`.

Invariant: a restarted bookie has its old directory, and therefore its old id, and its old ports.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quire.local.local_server import LocalServer

READY_TIMEOUT_S: Final = 30.0
RESERVE_BYTES: Final = 1024 * 1024
"""Reserve for emergencies, far below that of a bookie with a separate disk, because several share a
laptop's disk."""
SEGMENT_BYTES: Final = 16 * 1024 * 1024
"""Size of a segment. Each bookie reserves space for one more segment, and four bookies share this
disk."""


class LocalBookie(LocalServer):
    """A bookie: its id and its directory."""

    def __init__(
        self,
        name: str,
        data_dir: Path,
        log_path: Path,
        metadata_uri: str,
        other_options: Mapping[str, str],
    ) -> None:
        """`other_options` are options of `quire bookie run`, which override those of a local
        cluster.
        """
        self.data_dir = data_dir
        flags = {
            "data-dir": str(data_dir),
            "metadata": metadata_uri,
            "format-if-empty": name,
        }
        options = {
            "reserve_bytes_min": str(RESERVE_BYTES),
            "reserve_share": "0",
            "segment_bytes_max": str(SEGMENT_BYTES),
            "disk_high_mark": "1.0",
            "disk_low_mark": "0.99",
            "location": f"/local/{name}/{name}",
            **{key.replace("-", "_"): value for key, value in other_options.items()},
        }
        super().__init__(
            ("bookie", "run"), name, flags, options, log_path, ready_timeout_s=READY_TIMEOUT_S
        )

    @property
    def id(self) -> str:
        """The bookie's id, which never changes."""
        return self._known.id
