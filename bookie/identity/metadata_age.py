"""Check that the metadata service is not older than before, before any ledger's data is removed.

Leaves the removal to `bookie.server.collector`, and the position node to
`bookie.identity.position`.

A metadata service that was restored from a backup does not know the newer ledgers, so they look
deleted. Two numbers that only grow show its age: the version of this bookie's position node, and
the next ledger id to assign. A service that is older gets a record of a restore, with a token that
distinguishes it.

Format: the mark `identity/seen` is text, one `name value` per line, in this order:

    quire-seen        1
    position-version  the highest version seen of the position node; -1: there was none
    ledger-ids        the highest next ledger id seen
    went-back         reason why nothing is collected; empty while collecting is allowed
    told-apart        1 if the service that the reason is about has another token; else 0
    restore           token of the restore that was accepted, hex; empty if there was none
    crc32c            8 hex digits, over all lines before

Invariants: after the service was found older than before, nothing is removed until the newest one
is back or an operator accepts the older one, also after a restart; both numbers are those of the
service with the token `restore`, and never count what was written on another one; the older service
has its record before the position is recorded on it; nothing is removed while the metadata was
restored from a dump and that restore is not accepted, by the cluster's operator or for this bookie
alone.

Source: protocol rules 10.5, 10.6.
"""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from random import Random
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
from metadata.restore.restore_record import (
    TOKEN_BYTES,
    RestoreRecord,
    read_restore,
    record_older,
)
from metadata.store.interface import MetadataStore
from metadata.store.number_blocks import unpack_block

SEEN_NAME: Final = "seen"
KEEP_INTERVAL_S: Final = 10.0
"""Minimum time between two writes of the mark while the numbers grow, in seconds."""

_NAMES: Final = (
    "quire-seen",
    "position-version",
    "ledger-ids",
    "went-back",
    "told-apart",
    "restore",
    "crc32c",
)
_FORMAT_VERSION: Final = "1"
_UNACCEPTED: Final = (
    "the metadata service was restored, or is older than it was, and that is not accepted: compare "
    "it with the bookies (`quire metadata compare`), then run `quire metadata accept-restore`"
)
_ANOTHER: Final = "the metadata service does not know the restore that was accepted"


@dataclass(frozen=True, slots=True)
class SeenMetadata:
    """Newest state of the metadata service that this bookie has seen."""

    position_version: Version = NO_POSITION
    ledger_ids: int = 0
    went_back: str = ""
    """Reason why nothing is collected; empty while collecting is allowed."""
    is_told_apart: bool = False
    """Whether the service that went back has another token than `restore`."""
    restore: bytes = b""
    """Token of the restore that was accepted; empty if there was none."""


class MetadataAge:
    """Record of the newest state of the metadata service, and check whether it went back."""

    def __init__(
        self,
        disk: Disk,
        store: MetadataStore,
        rng: Random,
        bookie_id: BookieId,
        writability: Writability,
    ) -> None:
        self._disk = disk
        self._store = store
        self._rng = rng
        self._bookie_id = bookie_id
        self._writability = writability
        self._seen = SeenMetadata()
        self._kept: SeenMetadata | None = None
        self._changing = asyncio.Lock()

    @property
    def went_back(self) -> str:
        """Reason why nothing is collected; empty while collecting is allowed."""
        return self._seen.went_back

    def note_recorded(self, version: Version) -> None:
        """Also compare with a version that this process has recorded."""
        if not self._seen.went_back:
            known = max(version, self._seen.position_version)
            self._seen = replace(self._seen, position_version=known)

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
        """Do a fresh read of the metadata service's age; return whether data may be removed. An
        older service has its record, and the finding is durable unless the disk is full, when this
        returns False. Raises MetadataError.
        """
        async with self._changing:
            # Before the read: a version recorded during the read may be missing from its result.
            known = self._seen.position_version
            older = self._older(*await self._read(), known)
        if older:
            await self.keep()
            await record_older(self._store, self._rng.randbytes(TOKEN_BYTES), self._seen.restore)
            async with self._changing:
                self._older(*await self._read(), known)
        if self._seen.went_back:
            await self.keep()
        return not self._seen.went_back

    def _older(self, current: SeenMetadata, restored: RestoreRecord | None, known: Version) -> bool:
        """Note what the service is now, compared with what was seen, and with a known version of
        the position; return whether it is older, and has no other token that says so.
        """
        token, why = b"" if restored is None else restored.token, ""
        if token != self._seen.restore:
            if restored is not None and restored.is_accepted:
                self._seen = replace(current, restore=token)
            else:
                why = _ANOTHER if restored is None else _UNACCEPTED
                why = self._seen.went_back or why
                self._seen = replace(self._seen, went_back=why, is_told_apart=True)
            self._show()
            return False
        if current.position_version < known:
            version = current.position_version
            why = f"the position of this bookie is at version {version} and was at {known}"
        elif current.ledger_ids < self._seen.ledger_ids:
            why = f"the next ledger id is {current.ledger_ids} and was {self._seen.ledger_ids}"
        if why:
            why = self._seen.went_back or f"the metadata service is older than it was: {why}"
            self._seen = replace(self._seen, went_back=why, is_told_apart=False)
        elif self._seen.is_told_apart or not self._seen.went_back:
            newest = max(current.position_version, self._seen.position_version)
            self._seen = replace(current, position_version=newest, restore=token)
        self._show()
        return bool(why)

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


async def may_lack_starts(disk: Disk, store: MetadataStore) -> bool:
    """Return whether the service may not know the last starts of this bookie, by a fresh read: it
    was restored since the bookie last accepted that, or this bookie has started on an older one.
    Raises FormatError, MetadataError.
    """
    restored = await read_restore(store)
    data = await read_mark(disk, SEEN_NAME)
    seen = SeenMetadata() if data is None else decode_seen(data)
    token = b"" if restored is None else restored[0].token
    return bool(seen.went_back) or token != seen.restore


def encode_seen(seen: SeenMetadata) -> bytes:
    """Return the content of the mark."""
    values = (
        _FORMAT_VERSION,
        str(seen.position_version),
        str(seen.ledger_ids),
        seen.went_back,
        str(int(seen.is_told_apart)),
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
            Version(int(values[1])),
            int(values[2]),
            values[3],
            bool(int(values[4])),
            bytes.fromhex(values[5]),
        )
    except ValueError as error:
        raise FormatError(where, str(error)) from None
