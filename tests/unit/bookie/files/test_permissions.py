"""Files of another user are told apart from a disk that failed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie.errors import FINAL, NotPermittedError
from bookie.files.disk_real import RealDisk
from bookie.files.index_lmdb import LmdbStore

OTHER_USER = 65_534


@contextlib.contextmanager
def as_another_user(directory: Path) -> Iterator[None]:
    """Run the block as a user that may not use the directory, in all threads of this process."""
    if os.geteuid():
        directory.chmod(0)
        try:
            yield
        finally:
            directory.chmod(0o700)
        return
    directory.chmod(0o700)
    os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_a_directory_of_another_user_is_no_failed_disk(tmp_path: Path) -> None:
    root = tmp_path / "bookie"
    root.mkdir()
    disk = RealDisk(root)
    with as_another_user(root):
        for work in (disk.lock(), LmdbStore.open(root / "index", 2**20, has_own_disk=False)):
            with pytest.raises(NotPermittedError, match=r"user may not use it .*chown") as refused:
                await work
            assert "disk failed" not in str(refused.value)
    await disk.close()
    assert NotPermittedError in FINAL, "systemd starts it again only when an operator has acted"
