"""Unpacking of archives that belong to the tests."""

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, directory: Path) -> None:
    """Unpack an archive, with the filter of Python 3.11.4 and later where there is one."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(directory, filter="data")
    else:
        archive.extractall(directory)
