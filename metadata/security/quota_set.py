"""Quotas in memory, and whether there are any of each key.

Leaves following the store to `quota_store.py`, and which quota a client has to
`rates/quota_rules.py`.

Invariant: a key is limited while some entity has a value of it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from metadata.callbacks import Callbacks
from metadata.security.quotas import QuotaEntity, QuotaKey, QuotaValues
from metadata.store.interface import Cancel


class QuotaSet:
    """All quotas of a cluster, as last read."""

    def __init__(self) -> None:
        self._quotas: dict[QuotaEntity, QuotaValues] = {}
        self._counts = dict.fromkeys(QuotaKey, 0)
        """Number of entities with a value of each key."""
        self._callbacks = Callbacks[()]()

    @property
    def quotas(self) -> Mapping[QuotaEntity, QuotaValues]:
        """The values by entity."""
        return MappingProxyType(self._quotas)

    def limits(self, key: QuotaKey) -> bool:
        """Return whether some entity has a value of this key."""
        return self._counts[key] > 0

    def find(self, entity: QuotaEntity, key: QuotaKey) -> float | None:
        """Return the value of an entity; None if it has none."""
        values = self._quotas.get(entity)
        return None if values is None else values.get(key)

    def put(self, entity: QuotaEntity, values: QuotaValues) -> None:
        """Set the values of an entity, in place of those that it had."""
        self._count(entity, -1)
        self._quotas[entity] = values
        self._count(entity, 1)
        self._callbacks.notify()

    def remove(self, entity: QuotaEntity) -> None:
        """Remove an entity; one that is not there is ignored."""
        self._count(entity, -1)
        self._quotas.pop(entity, None)
        self._callbacks.notify()

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change."""
        return self._callbacks.add(callback)

    def _count(self, entity: QuotaEntity, step: int) -> None:
        for key in self._quotas.get(entity, {}):
            self._counts[key] += step
