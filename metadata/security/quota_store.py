"""Store of the quotas: one node per entity, changed by compare-and-set alone.

Leaves a quota and its bytes to `quotas.py`, and following the quotas to `quota_table.py`.

Invariants: a change is computed from the values that its write replaces; an entity without values
has no node.

Source: protocol rules 1.2-1.3; KIP-546.
"""

import asyncio
from collections.abc import AsyncIterator
from random import Random

from metadata.paths import QUOTAS, quota_path
from metadata.security.errors import TooManyQuotasError
from metadata.security.quotas import (
    QUOTAS_MAX,
    QuotaChanges,
    QuotaEntity,
    QuotaValues,
    altered,
    node_name,
    pack_quota,
    unpack_quota,
)
from metadata.store.child_values import READS_AT_ONCE_MAX
from metadata.store.interface import MetadataStore, find
from metadata.store.value_changes import change_node


class QuotaStore:
    """Quotas of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random, *, quotas_max: int = QUOTAS_MAX) -> None:
        self._store = store
        self._rng = rng
        self._quotas_max = quotas_max

    async def get(self, entity: QuotaEntity) -> QuotaValues:
        """Read the values of an entity with a fresh read; none if it has no quota.

        Raises MetadataError.
        """
        path = quota_path(node_name(entity))
        stored = await find(self._store, path)
        return {} if stored is None else unpack_quota(path, stored.value)[1]

    async def pages(self) -> AsyncIterator[list[tuple[QuotaEntity, QuotaValues]]]:
        """Yield all quotas in the order of their nodes, at most READS_AT_ONCE_MAX at once. Raises
        MetadataError.
        """
        nodes = sorted(await self._store.children(QUOTAS, fresh=True))
        for start in range(0, len(nodes), READS_AT_ONCE_MAX):
            paths = [quota_path(node) for node in nodes[start : start + READS_AT_ONCE_MAX]]
            found = await asyncio.gather(*(find(self._store, path) for path in paths))
            yield [
                unpack_quota(path, stored.value)
                for path, stored in zip(paths, found, strict=True)
                if stored is not None
            ]

    async def alter(self, entity: QuotaEntity, changes: QuotaChanges) -> QuotaValues:
        """Set and remove values of an entity in one write; return its values.

        Repeats until the outcome is certain or the call is cancelled; a cancelled call may have
        been applied, or may still be. Raises TooManyQuotasError, StoreUnavailableError when nothing
        was written, and the last error after many attempts.
        """
        path = quota_path(node_name(entity))

        def changed(value: bytes | None) -> bytes | None:
            wanted = altered({} if value is None else unpack_quota(path, value)[1], changes)
            return pack_quota(path, entity, wanted) if wanted else None

        value = await change_node(
            self._store, path, changed, self._rng, check_room=self._check_count
        )
        return {} if value is None else unpack_quota(path, value)[1]

    async def check_room(self, entity: QuotaEntity) -> None:
        """Check that a quota of this entity could be stored now. Raises TooManyQuotasError,
        MetadataError.
        """
        if await find(self._store, quota_path(node_name(entity))) is None:
            await self._check_count()

    async def _check_count(self) -> None:
        if len(await self._store.children(QUOTAS, fresh=True)) >= self._quotas_max:
            raise TooManyQuotasError(self._quotas_max)
