"""Common options of all data sources: option text by name, and access to the cluster.

Leaves the options of one source to `ledgers.options` and `topics.topic_options`.

Invariants: an unknown or malformed option is an OptionError that lists the valid ones; names of
options are compared without regard to case, as in Spark.

Source: Spark design, "Reading".
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ledger_client import ClientConfig
from metadata.errors import InvalidUriError
from metadata.store.uri import parse_metadata_uri
from quire import options
from quire.identity.errors import SecretError
from quire.identity.secret_files import read_ledger_password
from quire.options import Value, described, known_name
from spark_io.errors import OptionError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
CLIENT_PREFIX: Final = "client."
SHARED: Final = ("metadata", "password", "passwordFile", "path")
SPARKS_OWN: Final = ("checkpointlocation", "query", "dbtable", "queryname", "mergeschema")
"""Options that Spark adds, or that users set for every source."""
FILE_FORMATS: Final = (
    "header",
    "sep",
    "delimiter",
    "inferschema",
    "multiline",
    "nullvalue",
    "quote",
    "encoding",
)
"""Options of Spark's own CSV and JSON, which users set out of habit."""
SIZE_MAX: Final = 2**63 - 1
"""Maximum of a size without a smaller limit, in bytes."""
UNITS: Final = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
"""Bytes of each unit, as in Spark's settings: also kb, mb and so on, and kib, mib and so on."""

_SIZE: Final = re.compile(r"([0-9]+) *(b?|[kmgt](?:i?b)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Access to the cluster."""

    metadata: str
    password: bytes = field(repr=False)
    config: ClientConfig


PARTITIONS_MAX: Final = 100_000
"""Maximum of minPartitions: Spark holds each task's input in the driver."""
SPLIT_BYTES: Final = 64 * 2**20
ARROW_BATCH_BYTES: Final = 2 * 2**20
ARROW_BATCH_BYTES_MAX: Final = 512 * 2**20
"""Maximum of arrowBatchBytes: a batch is larger by what was received last, and Arrow's offsets in a
binary column end at 2 GiB.
"""
BATCH_MAX: Final = 2**63 - 1


class OptionReader:
    """Typed reads of option text, by name without regard to case."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        spelled = {name.lower(): name for name in known}
        for name in self._values:
            if name in spelled or name.startswith(CLIENT_PREFIX) or name in SPARKS_OWN:
                continue
            if name in FILE_FORMATS:
                why = "is one of Spark's file formats: an entry is no file, and has no header line"
                raise OptionError(name, f"{why}. Remove it: payloadFormat parses what is read")
            near = difflib.get_close_matches(name, spelled, n=1)
            hint = f"did you mean {spelled[near[0]]!r}?" if near else f"there are {list(known)}"
            raise OptionError(name, f"unknown: {hint}")

    def text(self, name: str) -> str | None:
        """Return an option's text; None without it."""
        value = self._values.get(name.lower())
        return None if value is None else str(value).strip()

    def positive(self, name: str, *, most: int | None = None) -> int | None:
        """Return a whole number, 1 to `most`; None without the option. Raises OptionError."""
        number = self._number(name, 1)
        if number is not None and most is not None and number > most:
            raise OptionError(name, f"{number} is over {most}")
        return number

    def natural(self, name: str) -> int | None:
        """Return a whole number of at least 0; None without the option. Raises OptionError."""
        return self._number(name, 0)

    def size(self, name: str, *, most: int = SIZE_MAX) -> int | None:
        """Return a number of bytes, 1 to `most`; None without the option. Raises OptionError."""
        text = self.text(name)
        if text is None:
            return None
        match = _SIZE.fullmatch(text)
        if match is None:
            raise OptionError(
                name, f"{text!r} is not a size: write bytes, or a unit of 1024s such as 64MB"
            )
        size = int(match[1]) * UNITS[match[2][:1].lower()]
        if not 1 <= size <= most:
            raise OptionError(name, f"{text!r} is {size} bytes: give at least 1 and at most {most}")
        return size

    def truth(self, name: str, *, default: bool) -> bool:
        """Return the value of a boolean option. Raises OptionError."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(name, f"{text!r} is neither true nor false")
        return text.lower() == "true"

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the options with this prefix, by their names without it."""
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


@dataclass(frozen=True, slots=True)
class CommonReadOptions:
    """What the reads of all data sources share."""

    client: ClientOptions
    starting_offsets: str
    ending_offsets: str
    split_bytes: int
    split_entries: int | None
    min_partitions: int
    arrow_batch_bytes: int
    fail_on_data_loss: bool
    max_entries_per_trigger: int | None
    """Maximum number of entries, or of offsets of a topic, in a micro-batch."""
    max_bytes_per_trigger: int | None


def common_reading(given: OptionReader) -> dict[str, Any]:
    """Return the fields of CommonReadOptions. Raises OptionError."""
    per_trigger = given.positive("maxEntriesPerTrigger")
    if given.text("maxOffsetsPerTrigger") is not None:
        if per_trigger is not None:
            raise OptionError(
                "maxOffsetsPerTrigger", "means the same as maxEntriesPerTrigger: give one"
            )
        per_trigger = given.positive("maxOffsetsPerTrigger")
    size = given.size("arrowBatchBytes", most=ARROW_BATCH_BYTES_MAX)
    return {
        "client": client_options(given),
        "starting_offsets": given.text("startingOffsets") or EARLIEST,
        "ending_offsets": given.text("endingOffsets") or LATEST,
        "split_bytes": given.size("splitBytes") or SPLIT_BYTES,
        "split_entries": given.positive("splitEntries"),
        "min_partitions": given.positive("minPartitions", most=PARTITIONS_MAX) or 1,
        "arrow_batch_bytes": size or ARROW_BATCH_BYTES,
        "fail_on_data_loss": given.truth("failOnDataLoss", default=True),
        "max_entries_per_trigger": per_trigger,
        "max_bytes_per_trigger": given.size("maxBytesPerTrigger"),
    }


def numbered_batch(given: OptionReader) -> tuple[str, int | None]:
    """Return the name of a job and the number of its run, as given. Raises OptionError."""
    application, batch = given.text("txnAppId") or "", given.natural("txnVersion")
    if batch is not None and not application:
        raise OptionError("txnVersion", "needs txnAppId, which is missing")
    if batch is not None and batch > BATCH_MAX:
        raise OptionError("txnVersion", f"{batch} is over {BATCH_MAX}")
    return application, batch


def require_number(application: str, batch: int | None) -> None:
    """Raise OptionError if a batch job has a name, and its run no number."""
    if application and batch is None:
        why = "missing: a batch job with txnAppId must number its runs 0, 1, 2, ..."
        raise OptionError("txnVersion", why)


def client_options(given: OptionReader) -> ClientOptions:
    """Return the access to the cluster. Raises OptionError."""
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
        raise OptionError("passwordFile", "cannot be combined with password: give one of the two")
    if path is not None:
        try:
            held = read_ledger_password(path)
        except SecretError as error:
            raise OptionError("passwordFile", str(error)) from error
        return ClientOptions(metadata, held, _config(given))
    return ClientOptions(metadata, (password or "").encode(), _config(given))


def _config(given: OptionReader) -> ClientConfig:
    """Return the client's configuration; its fields are the options with the prefix `client.`."""
    known = described(ClientConfig)
    changed: dict[str, Value] = {}
    try:
        for written, text in given.prefixed(CLIENT_PREFIX).items():
            option = CLIENT_PREFIX + written.replace("-", "_")
            known_name(option, [CLIENT_PREFIX + name for name in known], "option of the client")
            name = option.removeprefix(CLIENT_PREFIX)
            changed[name] = known[name].parsed(text, CLIENT_PREFIX + written)
        return ClientConfig(**changed)  # type: ignore[arg-type]  # each was checked by its option
    except (options.OptionError, ValueError) as error:
        raise OptionError("client.*", str(error)) from error
