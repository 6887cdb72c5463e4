"""ZooKeeper's own configuration, and the command that runs it.

Leaves starting the command to `server`.

Invariant: each write is on disk before it is answered (forceSync stays on).

Source: ZooKeeper 3.9, administrator's guide, "Configuration Parameters".
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quire.zookeeper.options import ZooKeeperOptions

FOUR_LETTER_WORDS: Final = "srvr,conf,ruok,mntr"
"""Questions that clients without a session may ask; none of them changes anything."""

_MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def settings_of(options: ZooKeeperOptions, data_dir: Path) -> dict[str, object]:
    """Return the settings of a server by their names in ZooKeeper."""
    settings: dict[str, object] = {
        "dataDir": data_dir,
        "clientPort": options.port,
        "clientPortAddress": options.host,
        "tickTime": options.tick_ms,
        "minSessionTimeout": min(2 * options.tick_ms, options.session_timeout_max_ms),
        "maxSessionTimeout": options.session_timeout_max_ms,
        "maxClientCnxns": options.connections_per_address_max,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": FOUR_LETTER_WORDS,
        "autopurge.snapRetainCount": options.snapshots_kept,
        "autopurge.purgeInterval": options.purge_interval_h,
    }
    if options.members:
        settings["initLimit"] = options.start_ticks
        settings["syncLimit"] = options.sync_ticks
        settings["quorumListenOnAllIPs"] = str(options.peers_on_all_addresses).lower()
        settings.update(each.setting for each in options.members)
    return settings


def java_command(
    java: Path, jars: Sequence[Path], properties: Path, options: ZooKeeperOptions
) -> list[str]:
    """Return the command that runs a server with the settings of a file."""
    return [
        str(java),
        f"-Xmx{options.heap_mb}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Dzookeeper.admin.enableServer=false",
        "-cp",
        os.pathsep.join(map(str, jars)),
        _MAIN_CLASS,
        str(properties),
    ]
