"""Check that the metadata service is not older than before, before any ledger's data is removed.

Leaves the removal to `bookie.server.collector`, and the position node to
`bookie.identity.position`.

A metadata service that was restored from a backup does not know the newer ledgers, so they look
deleted. Two numbers that only grow show its age: the version of this bookie's position node, and
the next ledger id to assign.

Format: the mark `identity/seen` is text, one `name value` per line, in this order:

    quire-seen        1
    position-version  the highest version seen of the position node; -1: there was none
    ledger-ids        the highest next ledger id seen
    went-back         reason why nothing is collected; empty while collecting is allowed
    restore           token of the restore that was accepted, hex; empty if there was none
    crc32c            8 hex digits, over all lines before

Invariants: after the service was found older than before, nothing is removed until an operator
accepts it, also after a restart; the finding is durable before the position is recorded again;
nothing is removed while the metadata was restored from a dump and that restore is not accepted, by
the cluster's operator or for this bookie alone.

Source: protocol rules 10.5, 10.6.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from bookie.errors import DiskFullError, FormatError
from bookie.files.disk import MARKS, Disk, read_mark, write_mark
from bookie.storage.writability import Reason, Writability
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import BookieId, Version
from metadata.ledgers.ledger_ids import FIRST_ID
from metadata.paths import LEDGER_IDS
from metadata.registry.positions import NO_POSITION, PositionStore
from metadata.restore.restore_record import RestoreRecord, read_restore
from metadata.store.interface import MetadataStore
from metadata.store.number_blocks import unpack_block

SEEN_NAME: Final = "seen"
KEEP_INTERVAL_S: Final = 10.0
"""Minimum time between two writes of the mark while the numbers grow, in seconds."""

_NAMES: Final = ("quire-seen", "position-version", "ledger-ids", "went-back", "restore", "crc32c")
_FORMAT_VERSION: Final = "1"
_UNACCEPTED: Final = (
    "the metadata service was restored from a dump, and that is not accepted: compare it with "
    "the bookies (`quire metadata compare`), then run `quire metadata accept-restore`"
)


@dataclass(frozen=True, slots=True)
class SeenMetadata:
    """Newest state of the metadata service that this bookie has seen."""

    position_version: Version = NO_POSITION
    ledger_ids: int = 0
    went_back: str = ""
    """Reason why nothing is collected; empty while collecting is allowed."""
    restore: bytes = b""
    """Token of the restore that was accepted; empty if there was none."""


class MetadataAge:
    """Record of the newest state of the metadata service, and check whether it went back."""

    def __init__(
        self, disk: Disk, store: MetadataStore, bookie_id: BookieId, writability: Writability
    ) -> None:
        self._disk = disk
        self._store = store
        self._bookie_id = bookie_id
        self._writability = writability
        self._recorded_version: Callable[[], Version] = lambda: NO_POSITION
        self._seen = SeenMetadata()
        self._kept: SeenMetadata | None = None
        self._changing = asyncio.Lock()

    @property
    def went_back(self) -> str:
        """Reason why nothing is collected; empty while collecting is allowed."""
        return self._seen.went_back

    def follow(self, recorded_version: Callable[[], Version]) -> None:
        """Also compare with the version that this process recorded last."""
        self._recorded_version = recorded_version

    async def restore(self) -> None:
        """Read what an earlier process saw, and compare. Call it once, before anything is recorded.

        Raises FormatError, MetadataError.
        """
        data = await read_mark(self._disk, SEEN_NAME)
        if data is not None:
            self._seen = self._kept = decode_seen(data)
        self._show()
        await self.may_collect()
        await self.keep()

    async def may_collect(self) -> bool:
        """Do a fresh read of the metadata service's age; return whether data may be removed. Raises
        MetadataError.
        """
        async with self._changing:
            # Before the read: a version recorded during the read may be missing from its result.
            known = max(self._recorded_version(), self._seen.position_version)
            self._seen = replace(self._seen, position_version=known)
            seen, restored = await self._read()
            if restored is not None and restored.token != self._seen.restore:
                if restored.is_accepted:
                    self._seen = replace(seen, restore=restored.token)
                    self._show()
                else:
                    self._note_went_back(_UNACCEPTED)
            if seen.position_version < self._seen.position_version:
                self._note_older(
                    f"the position of this bookie is at version {seen.position_version} and was "
                    f"at {self._seen.position_version}"
                )
            elif seen.ledger_ids < self._seen.ledger_ids:
                self._note_older(
                    f"the next ledger id is {seen.ledger_ids} and was {self._seen.ledger_ids}"
                )
            self._seen = SeenMetadata(
                max(seen.position_version, self._seen.position_version),
                max(seen.ledger_ids, self._seen.ledger_ids),
                self._seen.went_back,
                self._seen.restore,
            )
            went_back = bool(self._seen.went_back)
        if went_back:
            await self.keep()
        return not went_back

    async def note_position(self, version: Version, known: Version) -> None:
        """Record, durably, that the position node is at `version` and was at `known` before.

        Raises DiskFullError, DiskFailedError: then the finding is in effect but not durable.
        """
        async with self._changing:
            seen = max(known, self._seen.position_version)
            self._seen = replace(self._seen, position_version=seen)
            self._note_older(
                f"the position of this bookie is at version {version} and was at {seen}"
            )
            if self._seen != self._kept:
                await self._write(self._seen)

    async def accept(self) -> SeenMetadata:
        """Accept the current state of the metadata service as the newest, durably, as requested by
        an operator, for this bookie alone. A restore that is not accepted counts as accepted here.

        Raises DiskFullError, DiskFailedError, MetadataError: then nothing has changed.
        """
        async with self._changing:
            accepted, restored = await self._read()
            if restored is not None:
                accepted = replace(accepted, restore=restored.token)
            await self._write(accepted)
            self._seen = accepted
        self._show()
        return accepted

    async def keep(self) -> None:
        """Write the mark if it is out of date. A full disk leaves it unchanged."""
        async with self._changing:
            if self._seen != self._kept:
                with contextlib.suppress(DiskFullError):
                    await self._write(self._seen)

    async def run(self) -> None:
        """Keep the mark up to date until cancelled."""
        while True:
            await asyncio.sleep(KEEP_INTERVAL_S)
            with contextlib.suppress(MetadataError):
                await self.may_collect()
            await self.keep()

    def _note_older(self, why: str) -> None:
        self._note_went_back(f"the metadata service is older than it was: {why}")

    def _note_went_back(self, why: str) -> None:
        if not self._seen.went_back:
            self._seen = replace(self._seen, went_back=why)
            self._show()

    async def _read(self) -> tuple[SeenMetadata, RestoreRecord | None]:
        try:
            value = (await self._store.get(LEDGER_IDS, fresh=True)).value
            ledger_ids = unpack_block(LEDGER_IDS, value, FIRST_ID)
        except NodeNotFoundError:
            ledger_ids = 0
        position = await PositionStore(self._store).get(self._bookie_id)
        restored = await read_restore(self._store)
        return SeenMetadata(position.version, ledger_ids), restored and restored[0]

    async def _write(self, seen: SeenMetadata) -> None:
        await write_mark(self._disk, SEEN_NAME, encode_seen(seen))
        self._kept = seen

    def _show(self) -> None:
        if self._seen.went_back:
            self._writability.begin(Reason.METADATA_OLD, self._seen.went_back)
        else:
            self._writability.end(Reason.METADATA_OLD)


async def was_restored(disk: Disk, store: MetadataStore) -> bool:
    """Return whether the metadata was restored from a dump since this bookie last accepted it, by a
    fresh read. Raises FormatError, MetadataError.
    """
    restore = await read_restore(store)
    if restore is None:
        return False
    data = await read_mark(disk, SEEN_NAME)
    return data is None or decode_seen(data).restore != restore[0].token


def encode_seen(seen: SeenMetadata) -> bytes:
    """Return the content of the mark."""
    values = (
        _FORMAT_VERSION,
        str(seen.position_version),
        str(seen.ledger_ids),
        seen.went_back,
        seen.restore.hex(),
    )
    text = "".join(f"{name} {value}\n" for name, value in zip(_NAMES, values, strict=False))
    return f"{text}crc32c {crc32c(text.encode()):08x}\n".encode()


def decode_seen(data: bytes) -> SeenMetadata:
    """Decode the content of the mark. Raises FormatError."""
    where = f"{MARKS}/{SEEN_NAME}"
    try:
        *lines, rest = data.decode().split("\n")
        pairs = [line.partition(" ") for line in lines]
        names, values = [name for name, _, _ in pairs], [value for _, _, value in pairs]
        checked = "".join([line + "\n" for line in lines[:-1]])
        if rest or tuple(names) != _NAMES or values[0] != _FORMAT_VERSION:
            raise FormatError(
                where,
                "its lines are not those of this release's mark; remove it to start without it",
            )
        if values[-1] != f"{crc32c(checked.encode()):08x}":
            raise FormatError(where, "its checksum does not match; remove it to start without it")
        return SeenMetadata(
            Version(int(values[1])), int(values[2]), values[3], bytes.fromhex(values[4])
        )
    except ValueError as error:
        raise FormatError(where, str(error)) from None
