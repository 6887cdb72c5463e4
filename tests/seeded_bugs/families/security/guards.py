"""Seeded bugs of the guards of Kafka's APIs: requests that are served without a right.

Leaves the decisions, Produce and Fetch to `rights`.

Source: KIP-11, KIP-98, KIP-516, KIP-664; docs/security.md, "Authorization of topics".
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

DISPATCH: Final = "broker_layer/server/dispatch.py"
TRANSACTIONS: Final = "broker_layer/security/guards/transaction_guards.py"
TOPIC_GUARDS: Final = "broker_layer/security/guards/topic_guards.py"
METADATA: Final = "broker_layer/administration/topic_metadata_answers.py"

GUARD_TESTS: Final = (units("tests/unit/broker_layer/security/guards/test_guarded_handlers.py"),)
HIDDEN_TESTS: Final = (units("tests/unit/broker_layer/security/guards/test_hidden_resources.py"),)
BROKER_TESTS: Final = (units("tests/unit/broker_layer/security/test_broker_rights.py"),)

BUGS = (
    SeededBug(
        "markers_written_for_clients",
        "Markers of transactions are written for clients that may only describe the cluster.",
        ("KIP-98",),
        (
            Edit(
                TRANSACTIONS,
                "if call.rights.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)",
                "if call.rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)",
            ),
        ),
        BROKER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "markers_at_each_listener_without_guards",
        "Without an authorizer, each listener writes markers of transactions for its clients.",
        ("KIP-98",),
        (Edit(DISPATCH, "GUARDED_EVERYWHERE if is_guarded else ()", "GUARDED_EVERYWHERE"),),
        BROKER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "transaction_ended_without_a_right",
        "EndTxn needs no right on the transactional id.",
        ("KIP-98",),
        (
            Edit(
                TRANSACTIONS,
                "    if not _writes(call, call.request.transactional_id):\n",
                "    if not call.request.transactional_id:\n",
            ),
        ),
        GUARD_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "transaction_gets_a_part_of_its_topics",
        "A transaction gets the topics that its client may write, though others were refused.",
        ("KIP-98",),
        (
            Edit(
                TRANSACTIONS,
                "    if not refused:\n"
                "        return await call.serve(AddPartitionsToTxnResponse)\n",
                "    if not refused or allowed:\n"
                "        return await call.serve(AddPartitionsToTxnResponse)\n",
            ),
        ),
        BROKER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "hidden_topics_are_listed",
        "Metadata of all topics shows those that the client may not describe.",
        ("KIP-11",),
        (
            Edit(
                METADATA,
                "if len(names) < len(self._view.topics) or _asks_operations(request):",
                "if _asks_operations(request):",
            ),
        ),
        HIDDEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "id_shows_a_hidden_topic",
        "Metadata by the id of a topic shows a topic that the client may not describe.",
        ("KIP-516",),
        (
            Edit(
                METADATA,
                "if found is None or not sees_topic(context.rights, found):",
                "if found is None:",
            ),
        ),
        HIDDEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "topic_made_on_demand",
        "Metadata creates a topic for a client that may not create topics.",
        ("KIP-11",),
        (
            Edit(
                METADATA,
                "if not creates_topic(context.rights, name):",
                "if not name:",
            ),
        ),
        HIDDEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "deletion_by_id_not_checked",
        "DeleteTopics by id needs only the right to describe the topic.",
        ("KIP-516",),
        (
            Edit(
                TOPIC_GUARDS,
                "    if call.rights.check(Operation.DELETE, ResourceType.TOPIC, name):\n",
                "    if asked.name is None or call.rights.check(\n"
                "        Operation.DELETE, ResourceType.TOPIC, name\n"
                "    ):\n",
            ),
        ),
        HIDDEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "hidden_transactions_are_listed",
        "ListTransactions shows those that the client may not describe.",
        ("KIP-664",),
        (
            Edit(
                TRANSACTIONS,
                "        if call.rights.may(Operation.DESCRIBE, kind, each.transactional_id)\n",
                "        if kind and each.transactional_id\n",
            ),
        ),
        HIDDEN_TESTS,
        CLIENTS_TRUSTED,
    ),
)
