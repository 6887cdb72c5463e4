"""Options of the `ledger` data source: Spark's texts as checked values.

Leaves their use to the readers and the writers; docs/spark.md lists them with their defaults.

Spark's own filters come after reading (decision 0011). So a query that wants little of much names
it by options: its bounds.

Invariants: an option that is unknown, malformed or contradicts another is an OptionError that lists
the valid ones; names of options are compared without regard to case, as in Spark.

Source: Spark design, "Reading" and "Writing: exactly once"; docs/spark.md, "Reading a part".
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ledger_client import (
    AS_STORED,
    Encryption,
    Fragment,
    LedgerError,
    Quorum,
    StoredPayloads,
    read_key_file,
)
from metadata.errors import InvalidChainNameError
from metadata.ids import is_ledger_id
from metadata.ledgers.chain import APPLICATION_CHARACTERS_MAX, check_chain_name
from spark_io.common_options import (
    SHARED,
    ClientOptions,
    CommonReadOptions,
    OptionReader,
    client_options,
    common_reading,
    numbered_batch,
)
from spark_io.errors import OptionError
from spark_io.ranges import EntryRange

MIB: Final = 1024 * 1024
LEDGERS_NAMED_MAX: Final = 100_000
KEY_FILE: Final = "keyFile"
RECOVER_OPEN: Final = "recoverOpenLedgers"
INCLUDE_VALUE: Final = "includeValue"
INCLUDE_LINK: Final = "includeLink"
PAYLOAD_FORMAT: Final = "payloadFormat"
PAYLOAD_SCHEMA: Final = "payloadSchema"
CORRUPT_COLUMN: Final = "columnNameOfCorruptRecord"
BOUNDS: Final = (
    "startingLink",
    "endingLink",
    "startingTime",
    "endingTime",
    "startingEntry",
    "endingEntry",
    "fragments",
)
FRAGMENTS_NAMED_MAX: Final = 1_000
READING: Final = (
    KEY_FILE,
    PAYLOAD_FORMAT,
    PAYLOAD_SCHEMA,
    CORRUPT_COLUMN,
    "ledger",
    "ledgers",
    "chain",
    "match",
    "startingOffsets",
    "endingOffsets",
    "splitBytes",
    "splitEntries",
    "minPartitions",
    "arrowBatchBytes",
    INCLUDE_VALUE,
    INCLUDE_LINK,
    "asStored",
    "failOnDataLoss",
    RECOVER_OPEN,
    *BOUNDS,
    "maxEntriesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
)
WRITING: Final = (
    KEY_FILE,
    "chain",
    "ensemble",
    "writeQuorum",
    "ackQuorum",
    "inSync",
    "minInSync",
    "digest",
    "txnAppId",
    "txnVersion",
    "ledgerBytesMax",
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of the ledgers to read: exactly one of the three fields is given."""

    ledger_ids: tuple[int, ...] = ()
    chain: str = ""
    match: tuple[tuple[str, str], ...] = ()
    """Names and values that must all be in a ledger's custom metadata."""

    def describe(self) -> str:
        """Return the selection as text for messages."""
        if self.chain:
            return f"chain {self.chain!r}"
        if self.match:
            return "ledgers with " + ", ".join(f"{name}={value}" for name, value in self.match)
        return "ledgers " + ",".join(map(str, self.ledger_ids))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a batch query. An end is exclusive; None means no limit."""

    first_link: int | None = None
    end_link: int | None = None
    first_ms: int | None = None
    end_ms: int | None = None
    first_entry: int = 0
    end_entry: int | None = None
    fragments: tuple[int, ...] = ()
    """Numbers of the fragments to read; empty for all."""

    @classmethod
    def of(cls, given: OptionReader) -> "Bounds":
        """Check the options. Raises OptionError."""
        bounds = cls(
            first_link=given.natural("startingLink"),
            end_link=given.natural("endingLink"),
            first_ms=_time(given, "startingTime"),
            end_ms=_time(given, "endingTime"),
            first_entry=given.natural("startingEntry") or 0,
            end_entry=given.natural("endingEntry"),
            fragments=_fragments(given),
        )
        has_links = bounds.first_link is not None or bounds.end_link is not None
        if has_links and not given.text("chain"):
            raise OptionError("startingLink", "startingLink and endingLink need the option chain")
        _require_order("Link", bounds.first_link or 0, bounds.end_link)
        _require_order("Time", bounds.first_ms or 0, bounds.end_ms)
        _require_order("Entry", bounds.first_entry, bounds.end_entry)
        return bounds

    def is_within_time(self, time_ms: int) -> bool:
        """Return whether a time is within the bounds."""
        is_late_enough = self.first_ms is None or time_ms >= self.first_ms
        return is_late_enough and (self.end_ms is None or time_ms < self.end_ms)

    def names_trimmed(self, first_index: int, published_ms: int | None) -> str:
        """Return which links below the first one of a chain the query names, or may name by a time;
        empty if none. `published_ms` is when the first one was published; None if there is none.

        A query without a start begins at the first link, unless it ends before that.
        """
        end = first_index if self.end_link is None else min(self.end_link, first_index)
        if self.first_link is None and end < first_index:
            first = 0
        else:
            first = first_index if self.first_link is None else self.first_link
        if first < end:
            return f"links {first} to {end - 1}"
        if first_index == 0 or self.first_link is not None or self.end_link == 0:
            return ""
        begin_ms = self.end_ms if self.first_ms is None else self.first_ms + 1
        if begin_ms is None or (published_ms is not None and published_ms < begin_ms):
            return ""
        return f"links below {first_index} that may be within startingTime and endingTime"

    def wants(self, entry_id: int) -> bool:
        """Return whether an entry is before the end of the entries to read."""
        return self.end_entry is None or entry_id < self.end_entry

    def entries(self, ranges: Iterable[EntryRange]) -> Iterable[EntryRange]:
        """Return the ranges without the entries that are outside the bounds."""
        if not self.first_entry and self.end_entry is None:
            return ranges
        first, end = self.first_entry, self.end_entry
        clipped = (
            replace(
                range_,
                first=max(range_.first, first),
                last=range_.last if end is None else min(range_.last, end - 1),
            )
            for range_ in ranges
        )
        return (entry_range for entry_range in clipped if entry_range.count > 0)

    def of_fragments(
        self, ranges: Iterable[EntryRange], fragments: Mapping[int, tuple[Fragment, ...]]
    ) -> Iterator[EntryRange]:
        """Yield the parts of ranges that are in the wanted fragments of their ledgers. A ledger
        whose fragments are not known stays whole.
        """
        for range_ in ranges:
            if range_.ledger_id not in fragments:
                yield range_
                continue
            begins = [fragment.first_entry_id for fragment in fragments[range_.ledger_id]]
            for number in self.fragments:
                if number >= len(begins):
                    continue
                end = begins[number + 1] if number + 1 < len(begins) else range_.last + 1
                part = replace(
                    range_, first=max(range_.first, begins[number]), last=min(range_.last, end - 1)
                )
                if part.count > 0:
                    yield part


NO_BOUNDS: Final = Bounds()


@dataclass(frozen=True, slots=True)
class ReadOptions(CommonReadOptions):
    """A checked set of options to read with."""

    selection: Selection
    include_value: bool
    key_file: str | None = None
    """File with the keys of encrypted ledgers, at this path on the driver and on each executor:
    keys are never part of a plan.
    """
    as_stored: bool = False
    """Whether to return the payloads of encrypted ledgers as ciphertext."""
    bounds: Bounds = NO_BOUNDS
    """What a batch query leaves out."""
    recover_open_ledgers: bool = False
    """Whether a batch query first recovers open ledgers whose writers are gone."""
    include_link: bool = False
    """Whether rows have their ledger's link and its time of creation."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "ReadOptions":
        """Check the options of a read. Raises OptionError."""
        given = OptionReader(options, (*SHARED, *READING))
        return cls(
            **common_reading(given),
            selection=_selection(given),
            include_value=given.truth(INCLUDE_VALUE, default=True),
            include_link=given.truth(INCLUDE_LINK, default=False),
            key_file=_key_file(given),
            as_stored=given.truth("asStored", default=False),
            bounds=Bounds.of(given),
            recover_open_ledgers=given.truth(RECOVER_OPEN, default=False),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A checked set of options to write with."""

    client: ClientOptions
    chain: str
    quorum: Quorum
    digest: str
    application: str
    batch: int | None
    ledger_bytes_max: int
    key_file: str | None = None
    """File with the key of new ledgers, as in `ReadOptions`; None to write plain payloads."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Check the options of a write. Raises OptionError."""
        given = OptionReader(options, (*SHARED, *WRITING))
        chain = given.text("chain")
        if not chain:
            raise OptionError("chain", "missing: name the chain to which the ledgers are added")
        application, batch = numbered_batch(given)
        if len(application) > APPLICATION_CHARACTERS_MAX:
            raise OptionError("txnAppId", f"is over {APPLICATION_CHARACTERS_MAX} characters")
        digest = given.text("digest") or "crc32c"
        if digest not in ("crc32c", "hmac-sha256"):
            raise OptionError("digest", f"{digest!r} is neither crc32c nor hmac-sha256")
        client = client_options(given)
        if digest == "hmac-sha256" and not client.password:
            raise OptionError(
                "digest",
                "hmac-sha256 needs a password, because anyone can compute it without one: give "
                "passwordFile or password",
            )
        return cls(
            client=client,
            chain=_chain_name(chain),
            quorum=_quorum(given),
            digest=digest,
            application=application,
            batch=batch,
            ledger_bytes_max=given.size("ledgerBytesMax") or 1024 * MIB,
            key_file=_key_file(given, needs_current=True),
        )


def keys_to_read(options: ReadOptions) -> Encryption | StoredPayloads | None:
    """Return the keys to open ledgers with. Ledgers without encryption, which a chain may have
    beside encrypted ones, are read too. Raises KeyFileError, EncryptionUnavailableError.
    """
    if options.as_stored:
        return AS_STORED
    path = options.key_file
    return None if path is None else read_key_file(path, reads_plain=True)


def keys_to_write(options: WriteOptions) -> Encryption | None:
    """Return the keys to create ledgers with; None for plain ones. Raises the errors of
    `keys_to_read`.
    """
    return None if options.key_file is None else read_key_file(options.key_file)


def _key_file(given: OptionReader, *, needs_current: bool = False) -> str | None:
    """Return the path of the key file. Raises OptionError if it cannot be used here."""
    path = given.text(KEY_FILE)
    if not path:
        return None
    try:
        keys = read_key_file(path)
        if needs_current:
            keys.current_key()
    except LedgerError as error:
        raise OptionError(KEY_FILE, str(error)) from error
    return path


def _selection(given: OptionReader) -> Selection:
    names = ("ledger", "ledgers", "chain", "match")
    present = [name for name in names if given.text(name)]
    if len(present) != 1:
        shown = " and ".join(present) if present else "none"
        raise OptionError("ledgers", f"give exactly one of {', '.join(names)}; found {shown}")
    text = given.text(present[0]) or ""
    if present[0] == "chain":
        return Selection(chain=_chain_name(text))
    if present[0] == "match":
        return Selection(match=_match(text))
    return Selection(ledger_ids=_ledger_ids(present[0], text))


def _ledger_ids(option: str, text: str) -> tuple[int, ...]:
    ids: list[int] = []
    for part in text.replace(" ", "").strip("[]").split(","):
        if not (part.isdecimal() and is_ledger_id(int(part))):
            raise OptionError(option, f"{part!r} is not a ledger id: write 17 or 17,18")
        ids.append(int(part))
    if len(ids) > LEDGERS_NAMED_MAX:
        raise OptionError(option, f"{len(ids)} ledgers: name at most {LEDGERS_NAMED_MAX}")
    return tuple(dict.fromkeys(ids))


def _match(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `name=value,name=value`, or a JSON object of texts."""
    if text.startswith("{"):
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise OptionError("match", f"is not a JSON object: {error}") from error
        pairs = [(str(name), str(value)) for name, value in parsed.items()]
    else:
        pairs = [
            (name, value) for part in text.split(",") for name, _, value in [part.partition("=")]
        ]
        if any("=" not in part for part in text.split(",")):
            raise OptionError("match", f"{text!r} is not name=value,name=value")
    return tuple((name.strip(), value.strip()) for name, value in pairs)


def _chain_name(text: str) -> str:
    try:
        return check_chain_name(text)
    except InvalidChainNameError as error:
        raise OptionError("chain", str(error)) from error


def _quorum(given: OptionReader) -> Quorum:
    ensemble = given.positive("ensemble") or 3
    try:
        if given.truth("inSync", default=False):
            for name in ("writeQuorum", "ackQuorum"):
                if given.text(name) is not None:
                    raise OptionError(name, "in in-sync mode every member writes and acknowledges")
            least = given.positive("minInSync") or max(1, ensemble - 1)
            return Quorum.in_sync(ensemble, least)
        if given.text("minInSync") is not None:
            raise OptionError("minInSync", "needs inSync=true")
        write = given.positive("writeQuorum") or min(3, ensemble)
        ack = given.positive("ackQuorum") or write // 2 + 1
        return Quorum(ensemble=ensemble, write=write, ack=ack)
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError("ensemble", str(error)) from error


def _require_order(name: str, start: int, end: int | None) -> None:
    if end is not None and end < start:
        why = f"{end} is before its start, {start} (starting{name}): give an end that is not below"
        raise OptionError(f"ending{name}", why)


def _time(given: OptionReader, name: str) -> int | None:
    """Return a time in milliseconds since 1970. Raises OptionError."""
    text = given.text(name)
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        why = f"{text!r} is not a time: write 2026-11-28T12:00:00Z, or milliseconds since 1970"
        raise OptionError(name, why) from error
    if time.tzinfo is None:
        raise OptionError(name, f"{text!r} has no time zone: write {time.isoformat()}Z for UTC")
    return round(time.timestamp() * 1000)


def _fragments(given: OptionReader) -> tuple[int, ...]:
    text = given.text("fragments")
    if text is None:
        return ()
    parts = text.replace(" ", "").split(",")
    if not all(part.isdecimal() for part in parts) or len(parts) > FRAGMENTS_NAMED_MAX:
        why = f"{text!r} is not a list of at most {FRAGMENTS_NAMED_MAX} numbers: write 0 or 0,2"
        raise OptionError("fragments", why)
    return tuple(sorted({int(part) for part in parts}))
