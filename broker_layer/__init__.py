"""Topics over ledgers, served over the Kafka protocol.

Leaves replication and durability of records to `ledger_client`. `TopicLog` is the log of one
partition. Brokers serve it; other programs can use it in their own process.

- `broker_process`: one broker, put together from its store, client and options.
- `main`: a broker as a process; the only place that builds a real store and rng.
- `options`: options of one broker, with defaults and bounds.
- `handlers`: what a family of APIs gives to the dispatcher, rows of answers, and turns of the loop.
- `peer`: requests to other brokers, over one connection to each.
- `client_events`: log lines about what the ledger client notices.
- `coordinator_partitions`: internal topics, their led partitions, and forms of stored state.
- `errors`: failures of topics, with Kafka's codes.
- `kafka/`: bytes of Kafka's protocol.
- `security/`: who clients are, and what they may do.
- `server/`: connections, Produce, Fetch and offsets.
- `log/`: one partition's log over ledgers.
- `groups/`: consumer groups.
- `transactions/`: transactions.
- `control/`: leaders, controller and takeovers.
- `administration/`: topics, settings, elections and access control lists.
"""

from typing import TYPE_CHECKING

from broker_layer.errors import TopicError

if TYPE_CHECKING:
    from broker_layer.log.topic_log import TopicLog

__all__ = ["TopicError", "TopicLog"]


if not TYPE_CHECKING:  # type checkers would take any name for one that exists

    def __getattr__(name: str) -> object:
        """Import `TopicLog` at its first use: commands that ask brokers do without it."""
        if name == "TopicLog":
            from broker_layer.log.topic_log import TopicLog  # noqa: PLC0415

            return TopicLog
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
