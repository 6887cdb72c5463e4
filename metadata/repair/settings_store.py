"""Settings of repair: changed by compare-and-set, and followed.

Leaves the settings and their ranges to `settings.py`.

Invariants: a change keeps every setting that it does not name, also those of other releases; a view
shows the defaults until settings are stored, and the last known ones while it cannot read them.

Source: protocol rules 1.2-1.3 and 9.1.
"""

from collections.abc import Callable
from random import Random

from metadata.callbacks import Callbacks
from metadata.paths import REPAIR_SETTINGS
from metadata.repair.settings import (
    DEFAULTS,
    RepairSettings,
    check_settings,
    merged_settings,
    unpack_settings,
)
from metadata.store.followed_value import FollowedValue
from metadata.store.interface import Cancel, MetadataStore, find
from metadata.store.value_changes import change_value


class RepairSettingsStore:
    """Settings of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def get(self) -> RepairSettings:
        """Read the settings with a fresh read. Raises MetadataError."""
        stored = await find(self._store, REPAIR_SETTINGS)
        return DEFAULTS if stored is None else unpack_settings(REPAIR_SETTINGS, stored.value)

    async def change(self, **values: int) -> RepairSettings:
        """Change the named settings, and return all settings as stored.

        Repeats until the outcome is certain or the call is cancelled. Raises
        InvalidRepairSettingError, StoreUnavailableError when nothing was written.
        """
        check_settings(values)
        value = await change_value(
            self._store,
            REPAIR_SETTINGS,
            lambda stored: merged_settings(REPAIR_SETTINGS, stored, values),
            self._rng,
        )
        return unpack_settings(REPAIR_SETTINGS, value)


class RepairSettingsView:
    """Settings of a cluster, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._settings = DEFAULTS
        self._callbacks = Callbacks[()]()
        self._value = FollowedValue(store, REPAIR_SETTINGS, rng, on_value=self._put)

    @property
    def settings(self) -> RepairSettings:
        """The settings as last read."""
        return self._settings

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change, once `settings` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read the settings, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._value.start()

    async def aclose(self) -> None:
        """Stop following; `settings` keeps the last known ones."""
        await self._value.aclose()

    def _put(self, value: bytes | None) -> None:
        settings = DEFAULTS if value is None else unpack_settings(REPAIR_SETTINGS, value)
        if settings != self._settings:
            self._settings = settings
            self._callbacks.notify()
