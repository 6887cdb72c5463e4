"""Log lines for the operator about records that cannot be read.

Leaves the answer to the service of the request; clients retry.

Invariant: `quire.server.server_log` limits the number of lines, however often clients retry.
"""

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from ledger_client.errors import EntryLostError, LedgerError
from quire.server.server_log import ServerLog


class UnreadableRecords:
    """Report of records that one broker could not read."""

    def __init__(self, log: ServerLog) -> None:
        self._log = log

    def note(self, topic: str, partition: int, error: TopicError) -> None:
        """Write a line if the error means missing records; `why` names their ledger."""
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            return
        values: dict[str, object] = {"topic": topic, "partition": partition, "why": error.text}
        if isinstance(error.__cause__, LedgerError):
            trim = f"quire topic trim {topic} --partition {partition} --ledger ID --yes"
            is_lost = isinstance(error.__cause__, EntryLostError)
            start = "start the bookies of the ledger (quire ledger show); if they are lost: "
            values["try_next"] = trim if is_lost else start + trim
        self._log.warning("records cannot be read", **values)
