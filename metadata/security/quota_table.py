"""Quotas in the memory of a server, followed.

Leaves changes to `quota_store.py`, following the nodes to `metadata.store.child_values`, and what
servers do with them to `rates`, `broker_layer.server.quotas` and `bookie.server.client_quotas`.

Invariants: the table keeps what it has while the store does not answer; a quota is dropped only
when a successful read shows that it is gone; one whose record cannot be read keeps its last
readable values.

Source: protocol rule 1.6; KIP-546.
"""

from random import Random

from metadata.errors import MetadataFormatError
from metadata.paths import QUOTAS, quota_path
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaEntity, node_name, unpack_quota
from metadata.store.child_values import ChildValues
from metadata.store.interface import MetadataStore


class QuotaTable:
    """All quotas, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self.set = QuotaSet()
        self._entities: dict[str, QuotaEntity] = {}
        """node -> its entity"""
        self._values = ChildValues(store, QUOTAS, rng, on_value=self._put, on_gone=self._drop)

    async def start(self) -> None:
        """Read every quota, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def refresh(self) -> None:
        """Read the current quotas. Raises MetadataError."""
        await self._values.refresh()

    async def aclose(self) -> None:
        """Stop following; `set` keeps the last known quotas."""
        await self._values.aclose()

    def _put(self, node: str, value: bytes) -> None:
        path = quota_path(node)
        entity, values = unpack_quota(path, value)
        if node_name(entity) != node:
            raise MetadataFormatError(path, "it describes another entity")
        self._entities[node] = entity
        self.set.put(entity, values)

    def _drop(self, node: str) -> None:
        entity = self._entities.pop(node, None)
        if entity is not None:
            self.set.remove(entity)
