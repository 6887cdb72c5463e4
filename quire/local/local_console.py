"""The console of a local cluster, a process with its own port.

Leaves the process to `quire.local.local_server`, and the pages to `quire console`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quire.local.local_server import LocalServer

READY_TIMEOUT_S: Final = 30.0
NAME: Final = "console"


class LocalConsole(LocalServer):
    """A console; its address is a URL for browsers."""

    def __init__(
        self, log_path: Path, metadata_uri: str, port: int, other_options: Mapping[str, str]
    ) -> None:
        """`other_options` are options of `quire console`. With port 0 the kernel chooses one."""
        super().__init__(
            (NAME,),
            NAME,
            {"metadata": metadata_uri, "port": str(port)},
            {key.replace("-", "_"): value for key, value in other_options.items()},
            log_path,
            ready_timeout_s=READY_TIMEOUT_S,
        )
