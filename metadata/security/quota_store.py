"""Quotas: one node per entity, changed by compare-and-set alone, and followed by servers.

Leaves a quota to `quotas.py`, those in memory to `quota_set.py`, storing and following records to
`metadata.store.records`, and what servers do with quotas to `rates`, `broker_layer.server.quotas`
and `bookie.server.client_quotas`.

Invariant: an entity without values has no node.

Source: protocol rules 1.2-1.3 and 1.6; KIP-546.
"""

from random import Random
from typing import Final

from metadata.paths import QUOTAS
from metadata.security.errors import TooManyQuotasError
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import (
    QUOTA_CODEC,
    QUOTAS_MAX,
    QuotaChanges,
    QuotaEntity,
    QuotaRecord,
    QuotaValues,
    altered,
    entity_of_node,
    node_name,
)
from metadata.store.interface import MetadataStore
from metadata.store.records import NodeNames, RecordKind, RecordStore, RecordView

QUOTA_KIND: Final = RecordKind[QuotaEntity, QuotaRecord](
    QUOTAS,
    NodeNames(node_name, entity_of_node),
    QUOTA_CODEC,
    key_field="entity",
    too_many=TooManyQuotasError,
)


class QuotaStore(RecordStore[QuotaEntity, QuotaRecord]):
    """Quotas of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random, *, quotas_max: int = QUOTAS_MAX) -> None:
        super().__init__(QUOTA_KIND, store, rng, quotas_max)

    async def get(self, entity: QuotaEntity) -> QuotaValues:
        """Read the values of an entity with a fresh read; none if it has no quota. Raises
        MetadataError.
        """
        return _values_of(await self.find(entity))

    async def alter(self, entity: QuotaEntity, changes: QuotaChanges) -> QuotaValues:
        """Set and remove values of an entity in one write; return its values. Raises as `update`
        does.
        """

        def change(quota: QuotaRecord | None) -> QuotaRecord | None:
            wanted = altered(_values_of(quota), changes)
            return QuotaRecord(entity, wanted) if wanted else None

        return _values_of(await self.update(entity, change))


class QuotaTable(RecordView[QuotaEntity, QuotaRecord]):
    """All quotas in the memory of a server, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(QUOTA_KIND, store, rng)
        self.set = QuotaSet()
        self.on_record(self._note)

    def _note(
        self, entity: QuotaEntity, _before: QuotaRecord | None, after: QuotaRecord | None
    ) -> None:
        if after is None:
            self.set.remove(entity)
        else:
            self.set.put(entity, after.values)


def _values_of(quota: QuotaRecord | None) -> QuotaValues:
    return {} if quota is None else quota.values
