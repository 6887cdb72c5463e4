"""Damage to the cookie in one of a bookie's directories, and the check of the bookie's identity.

Leaves damage to the log and the index to `log_damage`.

The bookie either refuses to start and changes nothing, or starts with its correct identity.
Source: protocol rule 2.2.
"""

import asyncio
import shutil
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from bookie.errors import BookieError
from bookie.files.disk_real import RealDisk
from bookie.identity.cookie import COOKIE_NAME, DIRECTORIES
from bookie.identity.identity import Identity, format_directories, prove_identity
from metadata.ids import BookieId
from metadata.registry.cluster import ensure_cluster
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.faults.children import make_directory

STARTS_BEFORE: Final = 2


async def damage_cookies(count: int, rng: Random) -> list[str]:
    """Try this many damaged cookies; return one text for each error found."""
    parent = make_directory("cookies", in_memory=True)
    try:
        store = MemoryMetadataStore(MemoryMetadataServer())
        whole = parent / "whole"
        disk = RealDisk(whole)
        await disk.lock()
        bookie_id = await format_directories(
            disk, store, "bookie", rng, lambda: 5, partial(ensure_cluster, rng=rng)
        )
        for _ in range(STARTS_BEFORE):
            await prove_identity(disk, store)
        await disk.close()
        findings = [await _try_one(parent, whole, bookie_id, store, rng) for _ in range(count)]
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    return [text for text in findings if text]


async def _try_one(
    parent: Path, whole: Path, bookie_id: BookieId, store: MemoryMetadataStore, rng: Random
) -> str:
    copy = parent / "copy"
    shutil.copytree(whole, copy)
    try:
        path = copy / rng.choice(DIRECTORIES) / COOKIE_NAME
        original = path.read_bytes()
        _damage(path, original, rng)
        before = _contents(copy)
        disk = RealDisk(copy)
        try:
            found = await prove_identity(disk, store)
        except BookieError:
            return "" if _contents(copy) == before else f"{path.parent.name}: refused, and changed"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            return f"{path.parent.name}: an untyped error: {error!r}"
        finally:
            await disk.close()
        if _is_who_it_was(found, bookie_id):
            await _start_whole(whole, store)  # the metadata service has counted this start
            return ""
        return f"{path.parent.name}: taken for {found}"
    finally:
        shutil.rmtree(copy)


def _damage(path: Path, original: bytes, rng: Random) -> None:
    """Flip bits, cut, tear or remove it; the two other directories still have theirs."""
    match rng.randrange(4):
        case 0:
            changed = bytearray(original)
            for _ in range(rng.randint(1, 3)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
        case 1:
            path.write_bytes(original[: rng.randrange(len(original))])
        case 2:
            start = rng.randrange(len(original))
            path.write_bytes(original[:start] + rng.randbytes(len(original) - start))
        case _:
            path.unlink()


def _contents(directory: Path) -> dict[str, bytes]:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {path.name + path.parent.name: path.read_bytes() for path in files}


def _is_who_it_was(found: Identity, bookie_id: BookieId) -> bool:
    return found.bookie_id == bookie_id and not found.limbo_reason


async def _start_whole(whole: Path, store: MemoryMetadataStore) -> None:
    disk = RealDisk(whole)
    try:
        await prove_identity(disk, store)
    finally:
        await disk.close()


def run_cookies(count: int, seed: str) -> list[str]:
    """Try this many damaged cookies on a separate loop."""
    return asyncio.run(damage_cookies(count, Random(seed)))
