"""Options of the `ledger` data source: Spark's texts as checked values.

Leaves their use to the readers and the writers; docs/spark.md lists them with their defaults.

Invariants: an option that is unknown, malformed or contradicts another is an OptionError that lists
the valid ones; names of options are compared without regard to case, as in Spark.

Source: Spark design, "Reading" and "Writing: exactly once".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger_client import (
    AS_STORED,
    Encryption,
    LedgerError,
    Quorum,
    StoredPayloads,
    read_key_file,
)
from metadata.errors import InvalidChainNameError
from metadata.ids import is_ledger_id
from metadata.ledgers.chain import APPLICATION_CHARACTERS_MAX, check_chain_name
from spark_io.common_options import (
    EARLIEST,
    LATEST,
    PARTITIONS_MAX,
    SHARED,
    ClientOptions,
    OptionReader,
    client_options,
)
from spark_io.errors import OptionError
from spark_io.ledgers.bounds import BOUNDS, NO_BOUNDS, Bounds

MIB: Final = 1024 * 1024
SPLIT_BYTES: Final = 64 * MIB
ARROW_BATCH_BYTES: Final = 2 * MIB
ARROW_BATCH_BYTES_MAX: Final = 512 * MIB
"""Maximum of arrowBatchBytes: a batch is larger by what was received last, and Arrow's offsets in a
binary column end at 2 GiB.
"""
LEDGERS_NAMED_MAX: Final = 100_000
BATCH_MAX: Final = 2**63 - 1

KEY_FILE: Final = "keyFile"
RECOVER_OPEN: Final = "recoverOpenLedgers"
INCLUDE_VALUE: Final = "includeValue"
INCLUDE_LINK: Final = "includeLink"
PAYLOAD_FORMAT: Final = "payloadFormat"
PAYLOAD_SCHEMA: Final = "payloadSchema"
CORRUPT_COLUMN: Final = "columnNameOfCorruptRecord"
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
class ReadOptions:
    """A checked set of options to read with."""

    client: ClientOptions
    selection: Selection
    starting_offsets: str
    ending_offsets: str
    split_bytes: int
    split_entries: int | None
    min_partitions: int
    arrow_batch_bytes: int
    include_value: bool
    fail_on_data_loss: bool
    """Whether a stream continues from offsets that have no identities."""
    max_entries_per_trigger: int | None
    max_bytes_per_trigger: int | None
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
        per_trigger = given.positive("maxEntriesPerTrigger")
        if given.text("maxOffsetsPerTrigger") is not None:
            if per_trigger is not None:
                raise OptionError(
                    "maxOffsetsPerTrigger", "means the same as maxEntriesPerTrigger: give one"
                )
            per_trigger = given.positive("maxOffsetsPerTrigger")
        return cls(
            client=client_options(given),
            selection=_selection(given),
            starting_offsets=given.text("startingOffsets") or EARLIEST,
            ending_offsets=given.text("endingOffsets") or LATEST,
            split_bytes=given.size("splitBytes") or SPLIT_BYTES,
            split_entries=given.positive("splitEntries"),
            min_partitions=given.positive("minPartitions", most=PARTITIONS_MAX) or 1,
            arrow_batch_bytes=(
                given.size("arrowBatchBytes", most=ARROW_BATCH_BYTES_MAX) or ARROW_BATCH_BYTES
            ),
            include_value=given.truth(INCLUDE_VALUE, default=True),
            include_link=given.truth(INCLUDE_LINK, default=False),
            fail_on_data_loss=given.truth("failOnDataLoss", default=True),
            max_entries_per_trigger=per_trigger,
            max_bytes_per_trigger=given.size("maxBytesPerTrigger"),
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
        application, batch = given.text("txnAppId") or "", given.natural("txnVersion")
        if batch is not None and not application:
            raise OptionError("txnVersion", "needs txnAppId, which is missing")
        if batch is not None and batch > BATCH_MAX:
            raise OptionError("txnVersion", f"{batch} is over {BATCH_MAX}")
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
        found = " and ".join(present) if present else "none"
        raise OptionError("ledgers", f"give exactly one of {', '.join(names)}; found {found}")
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
            found = json.loads(text)
        except ValueError as error:
            raise OptionError("match", f"is not a JSON object: {error}") from error
        pairs = [(str(name), str(value)) for name, value in found.items()]
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
    except ValueError as error:
        raise OptionError("ensemble", str(error)) from error
