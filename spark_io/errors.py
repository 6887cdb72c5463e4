"""Errors of Spark jobs over ledgers and topics, in addition to those of the ledger client.

Leaves failures of the cluster to `ledger_client.errors`. Spark shows the text of an exception but
not its class, so each text names the option, ledger, range and bookies concerned, and the next
step.
"""

from collections.abc import Sequence

from quire.copyable import CopyableError


class SparkIoError(CopyableError):
    """Root of all errors of this package."""


class OptionError(SparkIoError, ValueError):
    """An option is missing, contradicts another, or has a value that is not valid."""

    def __init__(self, option: str, why: str) -> None:
        super().__init__(f"option {option!r}: {why}")
        self.option = option


class SchemaError(SparkIoError, ValueError):
    """A DataFrame does not have the columns that can be written, or a read wants other columns."""


class DataLostError(SparkIoError):
    """Entries that a query covers can no longer be read."""

    def __init__(self, ledger_id: int, first_entry_id: int, last_entry_id: int, why: str) -> None:
        super().__init__(
            f"ledger {ledger_id}, entries {first_entry_id} to {last_entry_id}: {why}. "
            "With the option failOnDataLoss=false lost entries are left out and reported in the "
            "executor's log"
        )
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.last_entry_id = last_entry_id


class ChainTrimmedError(SparkIoError):
    """Links of a chain that a query covers were trimmed, replaced or collected."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}. With the option failOnDataLoss=false lost links are left out")


class LinkUnreadableError(SparkIoError):
    """A link of a chain was not trimmed, and cannot be found now."""

    def __init__(self, chain: str, index: int) -> None:
        super().__init__(
            f"link {index} of chain {chain!r} was not trimmed, but the metadata does not have it: "
            "nothing is left out. Start the query again; if that does not help, compare the "
            f"position of the query with `quire chain show {chain}`"
        )
        self.chain = chain
        self.index = index


class ReadFailedError(SparkIoError):
    """Entries cannot be read now; a later attempt may succeed."""

    def __init__(self, ledger_id: int, first_entry_id: int, last_entry_id: int, why: str) -> None:
        super().__init__(f"ledger {ledger_id}, entries {first_entry_id} to {last_entry_id}: {why}")
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.last_entry_id = last_entry_id


class RecordsLostError(SparkIoError):
    """Records of a topic that a query covers can no longer be read."""

    def __init__(
        self, topic: str, partition: int, first_offset: int, end_offset: int, why: str
    ) -> None:
        super().__init__(
            f"topic {topic!r}, partition {partition}, offsets {first_offset} to {end_offset - 1}: "
            f"{why}. With the option failOnDataLoss=false lost records are left out and reported "
            "in the log of the driver or executor that finds the loss"
        )
        self.topic = topic
        self.partition = partition
        self.first_offset = first_offset
        self.end_offset = end_offset


class RecordsUnreadableError(SparkIoError):
    """Records of a topic cannot be read now; a later attempt may succeed."""

    def __init__(
        self, topic: str, partition: int, first_offset: int, end_offset: int, why: str
    ) -> None:
        super().__init__(
            f"topic {topic!r}, partition {partition}, offsets {first_offset} to {end_offset - 1}: "
            f"{why}"
        )


class UnknownTopicError(SparkIoError):
    """A topic that a query names does not exist, or was deleted."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"topic {topic!r} {why}: `quire topic list` shows the existing topics")
        self.topic = topic


class NoBrokerError(SparkIoError):
    """No broker is registered through which records can be appended."""

    def __init__(self, listener: str) -> None:
        which = f" with a listener {listener!r}" if listener else ""
        super().__init__(
            f"no broker{which} is registered: start one (`quire broker run`), or name some with "
            "the option bootstrapServers"
        )


class AppendError(SparkIoError):
    """Rows could not be appended to a topic, or the outcome is unknown."""

    def __init__(self, why: str, servers: Sequence[str]) -> None:
        super().__init__(
            f"{why} (brokers {', '.join(servers)}). Rows of this task may have been appended: if "
            "Spark runs the task again, it appends them again"
        )


class TransactionError(SparkIoError):
    """A batch was not appended to topics in a transaction, or the outcome is unknown."""

    def __init__(self, application: str, batch: int, why: str, servers: Sequence[str]) -> None:
        super().__init__(
            f"batch {batch} of {application!r}: {why} (brokers {', '.join(servers)}). Either all "
            "of its rows were appended or none: start the query or job again with the same "
            "checkpoint or txnVersion, and it finds out which"
        )


class TooManyRowsError(SparkIoError):
    """The rows of a batch do not fit into the driver's memory."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(
            f"exactlyOnce=true appends the rows of a batch on the driver, at most {size_max:,} "
            f"bytes, and there are at least {size:,}: limit a micro-batch with an option of the "
            "source such as maxOffsetsPerTrigger, divide a batch job, or write at least once"
        )


class OffsetError(SparkIoError, ValueError):
    """A stored offset is not one of the ledgers or the chain that the query names."""


class RecreatedError(SparkIoError):
    """A chain, ledger or topic was deleted and created again since a query recorded a position in
    it.
    """

    def __init__(self, kind: str, name: str, since: str) -> None:
        super().__init__(
            f"{kind} {name!r} was deleted and created again since {since}. The recorded position "
            f"is one in the deleted {kind}, so nothing was read. Begin with a new checkpoint to "
            f"read the present {kind} from its start. With the option failOnDataLoss=false a "
            f"query that is started again continues at the start of the present {kind}"
        )
        self.kind = kind
        self.name = name


class CorruptPayloadError(SparkIoError, ValueError):
    """A payload cannot be parsed, and the columns have none for such payloads."""

    def __init__(self, ledger_id: int, entry_id: int, form: str, corrupt_column: str) -> None:
        super().__init__(
            f"ledger {ledger_id}, entry {entry_id}: its payload is not {form} of the given "
            f"columns. A column {corrupt_column} of type string keeps such payloads apart (option "
            "columnNameOfCorruptRecord)"
        )
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class OldBatchError(SparkIoError):
    """A later batch of the same application is in a chain or topic."""

    def __init__(self, where: str, application: str, batch: int, last: int) -> None:
        super().__init__(
            f"batch {batch} of application {application!r} is older than batch {last}, the last "
            f"one in {where}: nothing was written. Give this run a number above it (txnVersion), "
            "or, for a stream with a new checkpoint, another txnAppId"
        )


class OtherQueryError(SparkIoError):
    """The name of an application belongs to another streaming query, or to batch jobs."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}. A stream that begins with a new checkpoint is another query: give it another "
            "txnAppId, or none, and startingOffsets where the old one ended"
        )


class NoQueryIdError(SparkIoError):
    """Spark did not give the id of a streaming query."""

    def __init__(self) -> None:
        super().__init__(
            "Spark did not give the id of the streaming query, by which a batch that is run again "
            "is known: nothing was written. Use PySpark 4.3, or write in foreachBatch with "
            "txnAppId and txnVersion"
        )


class JavaNotFoundError(SparkIoError):
    """No Java was found for Spark."""
