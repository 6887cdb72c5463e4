"""ZooKeeper as a server of its own: `quire zookeeper`.

- `options`: options of one server, and the servers of an ensemble.
- `server`: the Java process, from its start to its end.
- `main`: the server in this process.
- `status`: what servers answer about themselves.
"""

from typing import Final

PORT_DEFAULT: Final = 2_181
"""Port for clients that ZooKeeper's own documents use."""
