"""Replacement of a stopped bookie's index by a new one.

Leaves building the new one to `quire.offline.index_rebuild`.

Format: the old index stays as `index/data.mdb.old-N`, N from 1, unless it is to be discarded.
Invariant: at every moment `index/data.mdb` is the complete old index or the complete new one, also
after a loss of power.
"""

import os
import shutil
from pathlib import Path

from bookie.files.index_lmdb import DATA_NAME
from bookie.storage.opening import INDEX_NAME
from quire.offline.index_rebuild import NEW_NAME

OLD_PREFIX = f"{DATA_NAME}.old-"


def remove_unfinished(data_dir: Path) -> None:
    """Remove the unfinished index of an interrupted rebuild."""
    if (data_dir / NEW_NAME).exists():
        shutil.rmtree(data_dir / NEW_NAME)


def swap_index(data_dir: Path, *, discards_old: bool) -> Path | None:
    """Replace the old index by the new one, durably; return the old one's path if it is kept."""
    index, new = data_dir / INDEX_NAME, data_dir / NEW_NAME / DATA_NAME
    current = index / DATA_NAME
    kept = None if discards_old else index / f"{OLD_PREFIX}{_next_number(index)}"
    if kept is not None:
        kept.hardlink_to(current)
        _sync_directory(index)
    new.replace(current)
    _sync_directory(index)
    shutil.rmtree(new.parent)
    return kept


def _next_number(index: Path) -> int:
    digits = [path.name.removeprefix(OLD_PREFIX) for path in index.glob(f"{OLD_PREFIX}*")]
    return 1 + max((int(each) for each in digits if each.isdecimal()), default=0)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
