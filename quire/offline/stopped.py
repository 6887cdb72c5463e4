"""Access to the directory of a stopped bookie: its lock, its segment files, its index.

Leaves their contents to the other modules of this package.

Invariants: the directory is locked while it is open; nothing is created or removed here, so a
directory without an index stays without one. Source: protocol rule 2.2; storage design, "One log".
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bookie.config import StorageConfig
from bookie.errors import FormatError
from bookie.files.disk import Disk
from bookie.files.disk_real import RealDisk
from bookie.files.index_lmdb import DATA_NAME
from bookie.log import records, replay
from bookie.log.records import FooterRun, Record, RecordKind
from bookie.log.segments import DIRECTORY, ReadableFile, Segment, Segments, StartFiles, parse_name
from bookie.storage.opening import INDEX_NAME
from bookie.wire.batch import parse_header

MAP_BYTES: Final = StorageConfig().index_map_bytes


@asynccontextmanager
async def open_directory(data_dir: Path) -> AsyncIterator[RealDisk]:
    """Lock a bookie's directory until the end of the block. Raises NotADirectoryError,
    DirectoryLockedError while the bookie runs.
    """
    if not (data_dir / DIRECTORY).is_dir():
        raise NotADirectoryError(f"{data_dir} is not a bookie's directory: it has no {DIRECTORY}/")
    disk = RealDisk(data_dir)
    try:
        await disk.lock()
        yield disk
    finally:
        await disk.close()


async def list_segments(disk: Disk) -> Segments:
    """List the segment files, ascending, without any change to the directory. Raises FormatError
    for a file of a newer release.
    """
    segments, files = Segments(disk), StartFiles(disk)
    for name in await disk.list_names(DIRECTORY):
        parsed = parse_name(name)
        if parsed is not None:
            number, is_cleaned = parsed
            file = await files.open(f"{DIRECTORY}/{name}")
            try:
                version = records.newer_version(await file.read(0, records.RECORD_HEADER_BYTES))
                if version is not None:
                    why = f"it has format version {version}, so use the newer release that wrote it"
                    raise FormatError(name, why)
                segments.add(Segment(number, is_cleaned=is_cleaned, size=file.size))
            finally:
                await file.close()
    return segments


def has_index(data_dir: Path) -> bool:
    """Return whether an index exists: opening a missing one would create it."""
    return (data_dir / INDEX_NAME / DATA_NAME).is_file()


async def read_segment(file: ReadableFile, number: int) -> AsyncIterator[list[FooterRun]]:
    """Yield the adds records of a segment in pieces, in the order of the file, without damage."""
    reader = replay.SegmentReader(file, number, 0)
    while (part := await reader.next()) is not None:
        if not isinstance(part, replay.Damage):
            yield list(_adds_of(part))


def _adds_of(parsed: list[Record]) -> Iterator[FooterRun]:
    for record in parsed:
        if record.header.kind is RecordKind.ADDS:
            batch = parse_header(record.body)
            offset, size = records.offset_of(record.header.lsn), record.header.size
            yield FooterRun(batch.count, batch.ledger_id, batch.first_entry_id, offset, size)
