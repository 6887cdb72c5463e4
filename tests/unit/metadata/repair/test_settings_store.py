"""Settings of repair: changed by several operators, and followed."""

import asyncio
import random
from dataclasses import replace

import pytest

from metadata.errors import InvalidRepairSettingError, StoreUnavailableError
from metadata.paths import REPAIR_SETTINGS
from metadata.repair.settings import DEFAULTS
from metadata.repair.settings_store import RepairSettingsStore, RepairSettingsView
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until


async def test_settings_are_changed_and_read(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    settings = RepairSettingsStore(store, rng)
    assert await settings.get() == DEFAULTS
    changed = await settings.change(bytes_per_s=7, lost_after_s=60)
    assert changed == replace(DEFAULTS, bytes_per_s=7, lost_after_s=60)
    assert await settings.get() == changed


async def test_changes_at_once_are_all_kept(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    here, there = RepairSettingsStore(store, rng), RepairSettingsStore(other_store, rng)
    await asyncio.gather(
        here.change(bytes_per_s=7),
        there.change(lost_after_s=60),
        here.change(paused_until_ms=9),
        there.change(fragments_per_bookie=4),
    )
    assert await here.get() == replace(
        DEFAULTS, bytes_per_s=7, lost_after_s=60, paused_until_ms=9, fragments_per_bookie=4
    )


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_an_unknown_outcome_is_decided(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    settings = RepairSettingsStore(store, rng)
    for value in (1, 2):
        faults.acts = [act]
        assert (await settings.change(bytes_per_s=value)).bytes_per_s == value
    assert (await settings.get()).bytes_per_s == 2


async def test_what_is_refused_changes_nothing(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    settings = RepairSettingsStore(store, rng)
    with pytest.raises(InvalidRepairSettingError):
        await settings.change(bytes_per_s=7, lost_after_s=0)
    assert not faults.writes
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await settings.change(bytes_per_s=7)
    assert await settings.get() == DEFAULTS


async def test_a_view_follows_the_settings(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    settings = RepairSettingsStore(store, rng)
    view = RepairSettingsView(other_store, rng)
    seen: list[int] = []
    view.on_change(lambda: seen.append(view.settings.bytes_per_s))
    await view.start()
    assert view.settings == DEFAULTS
    for value in (7, 8):
        await settings.change(bytes_per_s=value)
        await until(lambda value=value: view.settings.bytes_per_s == value)  # type: ignore[misc]
    stored = await store.get(REPAIR_SETTINGS)
    version = await store.compare_and_set(REPAIR_SETTINGS, b"of a newer release", stored.version)
    await asyncio.sleep(1)
    assert view.settings.bytes_per_s == 8, "an unreadable value changes nothing"
    await store.delete(REPAIR_SETTINGS, version)
    await until(lambda: view.settings == DEFAULTS)
    assert seen == [7, 8, DEFAULTS.bytes_per_s]
    await view.aclose()
