"""Seeded bugs of access control lists: decisions, Produce and Fetch.

Leaves the guards of the other APIs to `guards`, and the rights of ZooKeeper's nodes, and
encryption, to `stored`.

Source: KIP-11, KIP-98, KIP-227, KIP-290; docs/security.md, "Authorization of topics".
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

TABLE: Final = "broker_layer/security/acl_table.py"
AUTHORIZER: Final = "broker_layer/security/authorizer.py"
PRODUCE: Final = "broker_layer/server/produce/produce_rights.py"
PRODUCING: Final = "broker_layer/server/produce/produce.py"
FETCH: Final = "broker_layer/server/fetch/fetch_reading.py"
FETCHING: Final = "broker_layer/server/fetch/fetch.py"
GROUPS: Final = "broker_layer/security/guards/group_guards.py"

TABLE_TESTS: Final = (units("tests/unit/broker_layer/security/test_acl_table.py"),)
AUTHORIZER_TESTS: Final = (units("tests/unit/broker_layer/security/test_authorizer.py"),)
PRODUCE_TESTS: Final = (units("tests/unit/broker_layer/server/produce/test_produce_rights.py"),)
FETCH_TESTS: Final = (units("tests/unit/broker_layer/server/fetch/test_fetch_rights.py"),)

BUGS = (
    # -- decisions
    SeededBug(
        "allow_wins_over_deny",
        "An ACL that allows wins over one that denies, if it comes first.",
        ("KIP-11",),
        (
            Edit(
                TABLE,
                "                if binding.permission is Permission.DENY:\n"
                "                    return Decision.DENIED\n"
                "                decision = Decision.ALLOWED\n",
                "                if binding.permission is Permission.ALLOW:\n"
                "                    return Decision.ALLOWED\n",
            ),
        ),
        TABLE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "name_taken_for_a_prefix",
        "An ACL of one name applies to all names that begin with it.",
        ("KIP-290",),
        (
            Edit(
                TABLE,
                "if binding.pattern_type is PatternType.PREFIXED:",
                "if binding.name != ANY_NAME:",
            ),
        ),
        TABLE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "prefix_taken_for_a_name",
        "An ACL of a prefix applies to the resource of this name alone.",
        ("KIP-290",),
        (
            Edit(
                TABLE,
                "if binding.pattern_type is PatternType.PREFIXED:",
                "if not binding.name:",
            ),
        ),
        TABLE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "host_of_an_acl_ignored",
        "An ACL for one host applies to all hosts.",
        ("KIP-11",),
        (Edit(TABLE, "if binding.host not in (client.host, ANY_NAME):", "if not binding.host:"),),
        TABLE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "principal_compared_as_a_prefix",
        "An ACL of a principal applies to each one whose name begins so.",
        ("KIP-11",),
        (
            Edit(
                TABLE,
                "if binding.principal not in (client.principal, ANY_USER):",
                "if not client.principal.startswith(binding.principal.rstrip('*')):",
            ),
        ),
        TABLE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "right_to_describe_implies_to_read",
        "The right to describe a resource implies the one to read it.",
        ("KIP-11",),
        (
            Edit(
                TABLE,
                "    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),\n",
                "    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),\n"
                "    Operation.READ: (Operation.DESCRIBE,),\n",
            ),
        ),
        TABLE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "unreadable_lists_are_empty",
        "While the lists cannot be read, the default for resources without an ACL decides.",
        ("security.md#authorization-of-topics",),
        (
            Edit(
                AUTHORIZER,
                "            return False\n        decision =",
                "            return self._config.allow_everyone_if_no_acl_found\n"
                "        decision =",
            ),
        ),
        AUTHORIZER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "unreadable_part_not_noted",
        "A part of the lists that cannot be decoded is left out, and the lists count as known.",
        ("security.md#authorization-of-topics",),
        (
            Edit(
                "metadata/security/acl_store.py",
                "            self._unreadable[name] = None\n",
                "            self._unreadable.pop(name, None)\n",
            ),
        ),
        (
            units(
                "tests/unit/metadata/security/test_acl_store.py"
                "::test_a_view_that_begins_with_a_damaged_shard_is_not_readable"
            ),
        ),
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "decision_outlives_the_lists",
        "A decision stays in the cache when the lists change.",
        ("security.md#authorization-of-topics",),
        (
            Edit(
                AUTHORIZER,
                "        self._table = None\n        self._decisions.clear()\n",
                "        self._table = None\n",
            ),
        ),
        AUTHORIZER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "decision_for_all_hosts",
        "A decision for a client at one host is used for its clients at all hosts.",
        ("KIP-11",),
        (
            Edit(
                AUTHORIZER,
                "asked = (client.principal, client.host, operation, kind, name)",
                'asked = (client.principal, "", operation, kind, name)',
            ),
        ),
        AUTHORIZER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "clients_of_each_listener_are_brokers",
        "With a listener of brokers, the clients of all listeners have the rights of brokers.",
        ("security.md#authorization-of-topics",),
        (
            Edit(
                AUTHORIZER,
                "listener == self._config.broker_listener",
                "self._config.broker_listener is not None",
            ),
        ),
        AUTHORIZER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "refusal_of_a_right_not_logged",
        "A request that is refused for a missing right is not in the audit log.",
        ("security.md#audit-log",),
        (
            Edit(
                AUTHORIZER,
                "        self._authorizer.note_refusal(self._client, act, operation, kind, name)\n",
                "        assert act\n",
            ),
        ),
        AUTHORIZER_TESTS,
        CLIENTS_TRUSTED,
    ),
    # -- Produce and Fetch
    SeededBug(
        "one_right_writes_all_topics",
        "A Produce is allowed for all topics that follow one that the client may write.",
        ("KIP-11",),
        (
            Edit(
                PRODUCE,
                "if rights.check(Operation.WRITE, R",
                "if allowed or rights.check(Operation.WRITE, R",
            ),
        ),
        PRODUCE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "refused_topic_is_appended",
        "A Produce appends to a topic that its client may not write, and answers with a refusal.",
        ("KIP-11",),
        (Edit(PRODUCE, "request._replace(topics=allowed) if refused else request", "request"),),
        PRODUCE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "produce_in_the_queue_not_checked",
        "A Produce that waits behind another one of its connection is not checked.",
        ("KIP-11",),
        (
            Edit(
                PRODUCING,
                "asked = self._admitted(following)",
                "asked = AdmittedProduce(decode_produce(following.api_version, following.body))",
            ),
        ),
        PRODUCE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "transactional_id_not_checked",
        "A Produce needs no right on its transactional id.",
        ("KIP-98",),
        (
            Edit(
                PRODUCE,
                "if name is not None and not rights.check(Operation.WRITE, kind, name):",
                'if name == "" and not rights.check(Operation.WRITE, kind, name):',
            ),
        ),
        PRODUCE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "session_of_fetch_keeps_a_right",
        "A Fetch of a session that was begun with a right is not checked again.",
        ("KIP-227",),
        (
            Edit(
                FETCHING,
                "rights = self._rights.of(exchange)",
                "rights = self._rights.of(exchange) if request.session_epoch <= 0 else None",
            ),
        ),
        FETCH_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "waiting_fetch_keeps_a_right",
        "A Fetch that waits returns records though the right was removed meanwhile.",
        ("KIP-11",),
        (Edit(FETCH, "if rights and not", "if rights and read.log is None and not"),),
        FETCH_TESTS,
        CLIENTS_TRUSTED,
    ),
)
