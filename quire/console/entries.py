"""Reads of entries for a page, which fence and write nothing, and their payloads as text.

Invariants: at most SHOWN_BYTES_MAX bytes of a payload are shown, and it is said how many there are;
characters that are not printable, or that change the direction of text, are shown as escapes.

Source: protocol rules 3.2, 8.1, 8.2, 9.4 and 9.9.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ledger_client import ClientConfig, LedgerError, LedgerReader, UnauthorizedError
from ledger_client.cluster_access import Cluster, open_pool
from ledger_client.digest import LedgerKeys
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.tailing import read_lac
from metadata.ids import LedgerId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.lost_entries import entries_left, range_of

SHOWN_BYTES_MAX: Final = 4_096
BYTES_PER_LINE: Final = 16
_KEPT: Final = "\n\t"
_ASCII: Final = frozenset(map(chr, range(0x20, 0x7F)))
ENTRIES_MAX: Final = 20
"""Maximum number of entries that one page shows."""
END_S: Final = 2.0
READ_S: Final = 4.0
CONFIG: Final = ClientConfig(read_timeout_s=END_S, read_bytes_max=1_048_576, read_ahead_count=1)
"""A page shows a few entries, so it does not read ahead."""


class Form(StrEnum):
    """How a payload is shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Shown:
    """A payload, or its beginning."""

    text: str
    length: int
    """Bytes of the complete payload."""
    form: Form
    """How it is shown: not as JSON, for example, if it is none."""
    shown_bytes: int
    """Bytes that the text shows: fewer than `length` if it is cut."""

    @property
    def is_cut(self) -> bool:
        """Whether the text shows only the beginning."""
        return self.shown_bytes < self.length


def form_of(name: str | None) -> Form:
    """Return the form that a query names; text for any other name."""
    return next((form for form in Form if form == name), Form.TEXT)


def shown(payload: bytes, form: Form) -> Shown:
    """Return a payload as text."""
    begin = payload[:SHOWN_BYTES_MAX]
    if form is Form.HEX:
        return Shown(_dump(begin), len(payload), Form.HEX, len(begin))
    if form is Form.JSON and len(begin) == len(payload):
        indented = _indented(begin)
        if indented is not None:
            return Shown(indented, len(payload), Form.JSON, len(begin))
    return Shown(
        printable(begin.decode("utf-8", "backslashreplace")), len(payload), Form.TEXT, len(begin)
    )


def _indented(payload: bytes) -> str | None:
    """Return JSON with one value on each line; None if it is not JSON."""
    try:
        text = json.dumps(json.loads(payload), indent=2)
    except (ValueError, RecursionError):
        return None
    return text if len(text) <= SHOWN_BYTES_MAX * BYTES_PER_LINE else None


def printable(text: str) -> str:
    """Return a text with escapes for what is not printable, or changes the direction of text."""
    return "".join(sign if sign.isprintable() or sign in _KEPT else _escaped(sign) for sign in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _dump(payload: bytes) -> str:
    """Return lines of an offset, bytes and the characters among them."""
    lines = []
    for offset in range(0, len(payload), BYTES_PER_LINE):
        row = payload[offset : offset + BYTES_PER_LINE]
        characters = "".join(chr(byte) if chr(byte) in _ASCII else "." for byte in row)
        lines.append(f"{offset:08x}  {row.hex(' '):<{3 * BYTES_PER_LINE}} {characters}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class End:
    """Last confirmed entry of a ledger, as far as it is known."""

    last_confirmed: int
    problem: str = ""
    """Why bookies did not say it, so that only what the metadata proves is known; else empty."""
    is_refused: bool = False
    """Whether bookies refuse the password, or the console's rights."""


@dataclass(frozen=True, slots=True)
class LedgerToRead:
    """A stored ledger, and the password that a viewer gave for it.

    Each read has connections of its own, so that the password of one viewer never serves another
    one; the password is kept nowhere; a read ends within READ_S.
    """

    metadata: LedgerMetadata
    version: Version
    keys: LedgerKeys

    @classmethod
    def of(cls, metadata: LedgerMetadata, version: Version, password: bytes) -> "LedgerToRead":
        """Return the ledger with the keys that the password gives."""
        return cls(metadata, version, LedgerKeys.of(metadata, password))

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger's id."""
        return self.metadata.ledger_id


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry."""

    entry_id: int
    payload: Shown | None
    """None if it is lost."""
    accepted_ms: int | None = None


@dataclass(frozen=True, slots=True)
class EntryRows:
    """Entries in their order, up to the first that could not be read."""

    rows: tuple[EntryRow, ...]
    problem: str = ""
    is_refused: bool = False


@asynccontextmanager
async def open_reader(cluster: Cluster, ledger: LedgerToRead) -> AsyncIterator[LedgerReader]:
    """Open a reader with its own connections. Raises UnauthorizedError. Payloads of encrypted
    ledgers stay ciphertext.
    """
    async with open_pool(cluster, ledger.keys) as pool:
        reader = LedgerReader(
            metadata=ledger.metadata,
            version=ledger.version,
            keys=ledger.keys,
            pool=pool,
            ledgers=cluster.ledgers,
            config=CONFIG,
            rng=cluster.rng,
        )
        async with reader:
            await reader.start(END_S)
            yield reader


async def read_end(cluster: Cluster, ledger: LedgerToRead) -> End:
    """Return the last confirmed entry: of a closed ledger from its metadata, otherwise from
    bookies.
    """
    followed = FollowedLedger(ledger.metadata, ledger.version, cluster.ledgers, cluster.rng)
    problem, is_refused = "", False
    if not followed.is_closed:
        try:
            async with asyncio.timeout(END_S), open_pool(cluster, ledger.keys) as pool:
                await read_lac(followed, pool, END_S)
        except LedgerError as error:
            problem, is_refused = str(error), isinstance(error, UnauthorizedError)
        except TimeoutError:
            problem = f"the bookies did not answer within {END_S:.0f} s"
    return End(followed.last_confirmed, problem, is_refused)


async def read_entries(
    cluster: Cluster, ledger: LedgerToRead, first: int, last: int, form: Form
) -> EntryRows:
    """Return the entries `first` to `last`, which are confirmed, and at most ENTRIES_MAX."""
    metadata = ledger.metadata
    last = min(last, first + ENTRIES_MAX - 1)
    rows: dict[int, EntryRow] = {}
    for number in range(first, last + 1):
        lost = range_of(metadata.lost, number)
        if lost is not None:
            rows[number] = EntryRow(number, None, lost.accepted_ms)
    problem, is_refused = "", False
    try:
        async with asyncio.timeout(READ_S), open_reader(cluster, ledger) as reader:
            for low, high in entries_left(metadata.lost, first, last):
                async for batch in reader.read(low, high, timeout=END_S):
                    for entry in batch:
                        payload = shown(bytes(entry.data), form)
                        rows[entry.id] = EntryRow(entry.id, payload)
    except LedgerError as error:
        problem, is_refused = str(error), isinstance(error, UnauthorizedError)
    except TimeoutError:
        problem = f"the bookies did not answer within {READ_S:.0f} s: try again"
    return EntryRows(tuple(rows[id_] for id_ in sorted(rows)), problem, is_refused)
