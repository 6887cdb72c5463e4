"""ZooKeeper as a server of its own: `quire zookeeper`.

- `options`: options of one server.
- `members`: the servers of an ensemble, as the options name them. Pure.
- `settings`: ZooKeeper's own configuration and the command that runs it. Pure.
- `server`: the Java process, from its start to its end.
- `main`: the server in this process.
- `status`: what servers answer about themselves.
"""

from typing import Final

PORT_DEFAULT: Final = 2_181
"""Port for clients that ZooKeeper's own documents use."""
