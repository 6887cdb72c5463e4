"""Settings of repair: changed by compare-and-set, and followed.

Leaves the settings and their ranges to `settings.py`.

Invariants: a change keeps every setting that it does not name, also those of other releases; a view
shows the defaults until settings are stored, and the last known ones while it cannot read them.

Source: protocol rules 1.2-1.3 and 9.1.
"""

from random import Random
from typing import Final

from metadata.msgpack_fields import Packed
from metadata.paths import REPAIR_SETTINGS
from metadata.repair.settings import (
    SETTINGS_CODEC,
    RepairSettings,
    check_settings,
    merged_settings,
    settings_of,
)
from metadata.store.interface import MetadataStore
from metadata.store.records import FollowedRecord, RecordNode

SETTINGS_NODE: Final = RecordNode(REPAIR_SETTINGS, SETTINGS_CODEC)


class RepairSettingsStore:
    """Settings of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def get(self) -> RepairSettings:
        """Read the settings with a fresh read. Raises MetadataError."""
        return settings_of(await SETTINGS_NODE.find(self._store))

    async def change(self, **values: int) -> RepairSettings:
        """Change the named settings, and return all settings as stored. Raises
        InvalidRepairSettingError, and as `change_node`.
        """
        check_settings(values)
        stored = await SETTINGS_NODE.change(
            self._store, self._rng, lambda before: merged_settings(before, values)
        )
        return settings_of(stored)


class RepairSettingsView(FollowedRecord[dict[str, Packed]]):
    """Settings of a cluster, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(SETTINGS_NODE, {}, store, rng)

    @property
    def settings(self) -> RepairSettings:
        """The settings as last read."""
        return settings_of(self.record)
