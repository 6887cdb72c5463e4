"""Store of the quotas: one node per entity, changed by compare-and-set alone.

Leaves a quota and its bytes to `quotas.py`, and following the quotas to `quota_table.py`.

Invariants: a change is computed from the values that its write replaces; a write with an unknown
outcome is repeated after a new read, which is safe because a change assigns values; an entity
without values has no node.

Source: protocol rules 1.2-1.3; KIP-546.
"""

import asyncio
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
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
from metadata.store.interface import MetadataStore, Stored, find

ATTEMPTS_MAX: Final = 1_000
"""Maximum number of attempts at one change; most attempts fail because another process changed the
same quota.
"""


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
        values, _ = await self._read(quota_path(node_name(entity)))
        return values

    async def alter(self, entity: QuotaEntity, changes: QuotaChanges) -> QuotaValues:
        """Set and remove values of an entity in one write; return its values.

        Repeats until the outcome is certain or the call is cancelled; a cancelled call may have
        been applied, or may still be. Raises TooManyQuotasError, StoreUnavailableError when nothing
        was written, and the last error after ATTEMPTS_MAX attempts.
        """
        path, backoff = quota_path(node_name(entity)), Backoff(self._rng)
        is_unknown = False
        failure: MetadataError | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                values, stored = await self._read(path)
                wanted = altered(values, changes)
                await self._write(path, entity, wanted, stored)
                return wanted
            except OutcomeUnknownError as error:
                is_unknown = True
                failure = error
            except (NodeExistsError, NodeNotFoundError, VersionConflictError) as error:
                failure = error
            except StoreUnavailableError as error:
                if not is_unknown:
                    raise
                failure = error
            await asyncio.sleep(backoff.next_s())
        assert failure is not None, "every attempt ended with an error"
        raise failure

    async def check_room(self, entity: QuotaEntity) -> None:
        """Check that a quota of this entity could be stored now. Raises TooManyQuotasError,
        MetadataError.
        """
        if await find(self._store, quota_path(node_name(entity))) is None:
            await self._check_count()

    async def _read(self, path: str) -> tuple[QuotaValues, Stored | None]:
        stored = await find(self._store, path)
        return ({} if stored is None else unpack_quota(path, stored.value)[1]), stored

    async def _write(
        self, path: str, entity: QuotaEntity, values: QuotaValues, stored: Stored | None
    ) -> None:
        if not values:
            if stored is not None:
                await self._store.delete(path, stored.version)
            return
        value = pack_quota(path, entity, values)
        if stored is not None:
            if stored.value != value:
                await self._store.compare_and_set(path, value, stored.version)
            return
        await self._check_count()
        await self._store.create(path, value)

    async def _check_count(self) -> None:
        if len(await self._store.children(QUOTAS, fresh=True)) >= self._quotas_max:
            raise TooManyQuotasError(self._quotas_max)
