"""Reads the options of the `ledger` data source: what Spark passes as text becomes checked values.

Leaves their use to the readers and the writers; docs/spark.md lists them with their defaults.

Invariants: an option that is unknown, malformed or contradicts another is an OptionError that says
what there is; names of options are compared without regard to case, as Spark does.

Source: Spark design, "Reading" and "Writing: exactly once".
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from ledger_client import ClientConfig, Quorum
from metadata.chain import APPLICATION_CHARACTERS_MAX, check_chain_name
from metadata.errors import InvalidChainNameError, InvalidUriError
from metadata.ids import is_ledger_id
from metadata.uri import parse_metadata_uri
from spark_io.errors import OptionError

MIB: Final = 1024 * 1024
SPLIT_BYTES: Final = 64 * MIB
ARROW_BATCH_BYTES: Final = 2 * MIB
LEDGERS_NAMED_MAX: Final = 100_000
BATCH_MAX: Final = 2**63 - 1

CLIENT_PREFIX: Final = "client."
SHARED: Final = ("metadata", "password", "passwordFile", "path")
READING: Final = (
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
    "includeValue",
    "failOnDataLoss",
    "maxEntriesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
)
WRITING: Final = (
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
SPARKS_OWN: Final = ("checkpointlocation", "query", "dbtable", "queryname", "mergeschema")
"""Options that Spark adds, or that people set for every source."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to reach the cluster."""

    metadata: str
    password: bytes = field(repr=False)
    config: ClientConfig


@dataclass(frozen=True, slots=True)
class Selection:
    """Which ledgers are read: exactly one of the three is given."""

    ledger_ids: tuple[int, ...] = ()
    chain: str = ""
    match: tuple[tuple[str, str], ...] = ()
    """Names and values that a ledger's custom metadata has all of."""

    def describe(self) -> str:
        """Name it in a message."""
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
    max_entries_per_trigger: int | None
    max_bytes_per_trigger: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "ReadOptions":
        """Check the options of a read. Raises OptionError."""
        given = _Given(options, (*SHARED, *READING))
        per_trigger = given.positive("maxEntriesPerTrigger")
        if given.text("maxOffsetsPerTrigger") is not None:
            if per_trigger is not None:
                raise OptionError("maxOffsetsPerTrigger", "is the same as maxEntriesPerTrigger")
            per_trigger = given.positive("maxOffsetsPerTrigger")
        return cls(
            client=_client(given),
            selection=_selection(given),
            starting_offsets=given.text("startingOffsets") or "earliest",
            ending_offsets=given.text("endingOffsets") or "latest",
            split_bytes=given.positive("splitBytes") or SPLIT_BYTES,
            split_entries=given.positive("splitEntries"),
            min_partitions=given.positive("minPartitions") or 1,
            arrow_batch_bytes=given.positive("arrowBatchBytes") or ARROW_BATCH_BYTES,
            include_value=given.truth("includeValue", default=True),
            fail_on_data_loss=given.truth("failOnDataLoss", default=True),
            max_entries_per_trigger=per_trigger,
            max_bytes_per_trigger=given.positive("maxBytesPerTrigger"),
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

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Check the options of a write. Raises OptionError."""
        given = _Given(options, (*SHARED, *WRITING))
        chain = given.text("chain")
        if not chain:
            raise OptionError("chain", "missing: name the chain to which the ledgers are added")
        application, batch = given.text("txnAppId") or "", given.natural("txnVersion")
        if batch is not None and not application:
            raise OptionError("txnVersion", "goes with txnAppId, which is missing")
        if batch is not None and batch > BATCH_MAX:
            raise OptionError("txnVersion", f"{batch} is over {BATCH_MAX}")
        if len(application) > APPLICATION_CHARACTERS_MAX:
            raise OptionError("txnAppId", f"is over {APPLICATION_CHARACTERS_MAX} characters")
        digest = given.text("digest") or "crc32c"
        if digest not in ("crc32c", "hmac-sha256"):
            raise OptionError("digest", f"{digest!r} is neither crc32c nor hmac-sha256")
        return cls(
            client=_client(given),
            chain=_chain_name(chain),
            quorum=_quorum(given),
            digest=digest,
            application=application,
            batch=batch,
            ledger_bytes_max=given.positive("ledgerBytesMax") or 1024 * MIB,
        )


class _Given:
    """Options by lower-case name."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        spelled = {name.lower(): name for name in known}
        for name in self._values:
            if name in spelled or name.startswith(CLIENT_PREFIX) or name in SPARKS_OWN:
                continue
            near = difflib.get_close_matches(name, spelled, n=1)
            hint = f"did you mean {spelled[near[0]]!r}?" if near else f"there are {list(known)}"
            raise OptionError(name, f"unknown: {hint}")

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return None if value is None else str(value).strip()

    def positive(self, name: str) -> int | None:
        return self._number(name, 1)

    def natural(self, name: str) -> int | None:
        return self._number(name, 0)

    def truth(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(name, f"{text!r} is neither true nor false")
        return text.lower() == "true"

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the options whose names begin so, without the prefix."""
        return {
            name[len(prefix) :]: value
            for name, value in self._values.items()
            if name.startswith(prefix)
        }

    def _number(self, name: str, least: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < least:
            raise OptionError(name, f"{text!r} is not a whole number of at least {least}")
        return int(text)


def _client(given: _Given) -> ClientOptions:
    metadata = given.text("metadata")
    if not metadata:
        raise OptionError(
            "metadata", "missing: give the cluster's address, zk://host:port[,host:port...]/path"
        )
    try:
        parse_metadata_uri(metadata)
    except InvalidUriError as error:
        raise OptionError("metadata", str(error)) from error
    password, path = given.text("password"), given.text("passwordFile")
    if password is not None and path is not None:
        raise OptionError("passwordFile", "goes without password: give one of the two")
    if path is not None:
        try:
            held = Path(path).read_bytes().removesuffix(b"\n")
        except OSError as error:
            raise OptionError("passwordFile", f"cannot be read: {error}") from error
        return ClientOptions(metadata, held, _config(given))
    return ClientOptions(metadata, (password or "").encode(), _config(given))


def _config(given: _Given) -> ClientConfig:
    """Return the client's configuration: its fields are options behind `client.`."""
    known = {each.name.lower(): each for each in fields(ClientConfig)}
    changed: dict[str, int | float | bool | None] = {}
    for name, text in given.prefixed(CLIENT_PREFIX).items():
        wanted = known.get(name.replace("-", "_"))
        if wanted is None:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {CLIENT_PREFIX}{near[0]}?" if near else f"known: {list(known)}"
            raise OptionError(CLIENT_PREFIX + name, f"unknown: {hint}")
        try:
            is_optional = "None" in str(wanted.type)
            changed[wanted.name] = _value_like(wanted.default, text, is_optional=is_optional)
        except ValueError as error:
            raise OptionError(CLIENT_PREFIX + name, str(error)) from error
    try:
        return ClientConfig(**changed)  # type: ignore[arg-type]  # each is of its default's type
    except ValueError as error:
        raise OptionError("client.*", str(error)) from error


def _value_like(default: object, text: str, *, is_optional: bool) -> int | float | bool | None:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() == "true"
    if text.lower() == "none" and is_optional:
        return None
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is not a number from 0 on")
    return value if isinstance(default, float) else int(value)


def _selection(given: _Given) -> Selection:
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
            raise OptionError(option, f"{part!r} is no ledger id: write 17 or 17,18")
        ids.append(int(part))
    if len(ids) > LEDGERS_NAMED_MAX:
        raise OptionError(option, f"{len(ids)} ledgers: name {LEDGERS_NAMED_MAX} at most")
    return tuple(dict.fromkeys(ids))


def _match(text: str) -> tuple[tuple[str, str], ...]:
    """Read `name=value,name=value`, or a JSON object of texts."""
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise OptionError("match", f"is no JSON object: {error}") from error
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


def _quorum(given: _Given) -> Quorum:
    ensemble = given.positive("ensemble") or 3
    try:
        if given.truth("inSync", default=False):
            for name in ("writeQuorum", "ackQuorum"):
                if given.text(name) is not None:
                    raise OptionError(name, "in in-sync mode every member writes and acknowledges")
            least = given.positive("minInSync") or max(1, ensemble - 1)
            return Quorum.in_sync(ensemble, least)
        if given.text("minInSync") is not None:
            raise OptionError("minInSync", "goes with inSync=true")
        write = given.positive("writeQuorum") or min(3, ensemble)
        ack = given.positive("ackQuorum") or write // 2 + 1
        return Quorum(ensemble=ensemble, write=write, ack=ack)
    except ValueError as error:
        raise OptionError("ensemble", str(error)) from error
