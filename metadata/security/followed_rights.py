"""Rights of the nodes that one store creates, by the cluster's record.

Leaves the record to `metadata.security.rights_record`, and existing nodes to
`metadata.security.securing`.

Invariants: a store that does not log in follows nothing, and its nodes are open. While a record
cannot be read, nothing is created: an open node could not be told from a protected one.

Source: docs/security.md, "ZooKeeper".
"""

from random import Random

from metadata.errors import MetadataFormatError
from metadata.paths import NODE_RIGHTS
from metadata.security.rights_record import OPEN, RIGHTS_NODE, AccessList, NodeRights
from metadata.store.followed_value import FollowedValue
from metadata.store.interface import MetadataStore


class FollowedRights:
    """The cluster's record, followed from `start` to `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._rights: NodeRights | MetadataFormatError = OPEN
        self._followed = FollowedValue(store, NODE_RIGHTS, rng, on_value=self._put)

    async def start(self) -> None:
        """Read the record, and keep following it. Raises MetadataError."""
        await self._followed.start()
        self._known()

    def access_to(self, path: str) -> AccessList | None:
        """Return the rights of a new node; None if it is open. Raises MetadataFormatError while the
        record cannot be read.
        """
        rights = self._known()
        return None if rights.is_open else rights.access_to(path)

    async def aclose(self) -> None:
        """Stop following."""
        await self._followed.aclose()

    def _known(self) -> NodeRights:
        if isinstance(self._rights, MetadataFormatError):
            raise self._rights
        return self._rights

    def _put(self, value: bytes | None) -> None:
        try:
            self._rights = OPEN if value is None else RIGHTS_NODE.unpack(value)
        except MetadataFormatError as error:
            self._rights = error
            raise
