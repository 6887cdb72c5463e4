"""The directory of a ZooKeeper that this package starts is for its owner alone."""

import os
from pathlib import Path

import pytest

from metadata.store.embedded import DIRECTORY_MODE, lock_directory


@pytest.mark.parametrize("is_old", [False, True])
async def test_other_users_may_not_read_it(tmp_path: Path, *, is_old: bool) -> None:
    directory = tmp_path / "zookeeper"
    if is_old:
        directory.mkdir(mode=0o755)
    os.close(await lock_directory(directory))
    assert directory.stat().st_mode & 0o777 == DIRECTORY_MODE
