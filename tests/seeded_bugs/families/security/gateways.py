"""Seeded bugs of metadata gateways: decisions, sessions, and what holds before a hello.

Leaves rights of logins to ZooKeeper to `stored`, and roles at bookies to `roles`.

Source: docs/security.md, "A gateway for clients".
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Detector, Edit, SeededBug, units

CHANGES: Final = "gateway/rights/ledger_changes.py"
LEDGERS: Final = "gateway/rights/ledger_rules.py"
CHAINS: Final = "gateway/rights/chain_rules.py"
HEADS: Final = "gateway/rights/chain_changes.py"
IDS: Final = "gateway/rights/id_rules.py"
DECISIONS: Final = "gateway/rights/decisions.py"
VERDICT: Final = "gateway/rights/verdict.py"
SESSIONS: Final = "gateway/sessions.py"
REQUESTS: Final = "gateway/requests.py"
CONNECTION: Final = "gateway/connection.py"

RULES: Final = ("security.md#a-gateway-for-clients",)
LEDGER_TESTS: Final = (units("tests/unit/gateway/rights/test_ledger_decisions.py"),)
CHAIN_TESTS: Final = (units("tests/unit/gateway/rights/test_chain_decisions.py"),)
REQUEST_TESTS: Final = (units("tests/unit/gateway/test_requests.py"),)
CONNECTION_TESTS: Final = (units("tests/unit/gateway/test_connection.py"),)


def bug(name: str, wrong: str, edit: Edit, tests: tuple[Detector, ...] = LEDGER_TESTS) -> SeededBug:
    """Return a bug of one edit."""
    return SeededBug(name, wrong, RULES, (edit,), tests, CLIENTS_TRUSTED)


BUGS = (
    bug(
        "ledgers_for_other_owners",
        "A client of a gateway creates a ledger that another principal owns.",
        Edit(LEDGERS, "    if new.owner != subject.principal:\n", "    if not new.owner:\n"),
    ),
    bug(
        "ids_of_another_session",
        "A client of a gateway uses an id that another session allocated.",
        Edit(LEDGERS, "ALLOWED if subject.has_id(ledger_id) else", "ALLOWED if is_chosen else"),
    ),
    bug(
        "allocated_ids_are_chosen",
        "A client of a gateway chooses an id that was allocated before.",
        Edit(LEDGERS, "is_allocated = FIRST_ID <= ledger_id < free", "is_allocated = False"),
    ),
    bug(
        "owner_is_given_away",
        "An administrator of a ledger changes its owner at a gateway.",
        Edit(CHANGES, "        metadata.owner,\n        custom,\n", "        custom,\n"),
    ),
    bug(
        "state_moves_back",
        "An owner opens a closed ledger again.",
        Edit(
            CHANGES,
            " and _ORDER.index(old.state) <= _ORDER.index(new.state)",
            "",
        ),
    ),
    bug(
        "writers_begin_recoveries",
        "A writer begins a recovery of a ledger in the metadata.",
        Edit(
            CHANGES,
            "    yield RECOVERY, lambda: old.with_recovery_begun(token)\n",
            "    yield LedgerRight.APPEND, lambda: old.with_recovery_begun(token)\n",
        ),
    ),
    bug(
        "two_roles_make_an_administrator",
        "A client with the roles of a writer and a recoverer deletes a ledger.",
        Edit(
            LEDGERS,
            "    needed = LedgerRight.MANAGE if new is None else",
            "    needed = LedgerRight.FENCE | LedgerRight.APPEND if new is None else",
        ),
    ),
    bug(
        "decided_on_another_version",
        "A gateway decides about a change on another version than the change replaces.",
        Edit(VERDICT, "    if stored.version != expected:\n", "    if stored.version < 0:\n"),
    ),
    bug(
        "counter_goes_back",
        "A client of a gateway sets the counter of ids back.",
        Edit(IDS, "and least <= end <= first + BLOCK_IDS", "and end <= first + BLOCK_IDS"),
    ),
    bug(
        "counter_jumps",
        "A client of a gateway uses up ids without a bound.",
        Edit(IDS, "and least <= end <= first + BLOCK_IDS", "and least <= end"),
    ),
    bug(
        "registrations_of_others_removed",
        "A client of a gateway removes the registration of another client.",
        Edit(
            IDS,
            "            case Delete() if subject.has_ephemeral(path):\n",
            "            case Delete():\n",
        ),
    ),
    bug(
        "first_part_decides",
        "A gateway decides about the first operation of a multi alone.",
        Edit(
            DECISIONS,
            "    for each in operations:\n        verdict",
            "    for each in operations[:1]:\n        verdict",
        ),
    ),
    bug(
        "gateway_reads_secrets",
        "Every client of a gateway reads the key of repair.",
        Edit(DECISIONS, "subject.is_super or Right.READ in client_rights(path)", "path"),
    ),
    bug(
        "unowned_chains",
        "A chain that is created through a gateway has no owner.",
        Edit(
            CHAINS,
            "            return Allowed(added=(Create(owner_path, owner),))\n",
            "            return ALLOWED if owner else refused\n",
        ),
        CHAIN_TESTS,
    ),
    bug(
        "links_that_no_head_counts",
        "A writer of a chain stores a link without a change of the head.",
        Edit(
            CHAINS,
            " or publication is None or publication[0] != operation:\n",
            " or publication == (operation, None):\n",
        ),
        CHAIN_TESTS,
    ),
    bug(
        "writers_replace_links",
        "A writer of a chain removes all earlier links.",
        Edit(
            HEADS,
            "    return LedgerRight.MANAGE if rises else None\n",
            "    return LedgerRight.APPEND if rises else None\n",
        ),
        CHAIN_TESTS,
    ),
    bug(
        "chain_of_another_life",
        "A decision about a chain holds for a later chain of the same name.",
        Edit(CHAINS, "            return self.life\n", "            return ()\n"),
        CHAIN_TESTS,
    ),
    bug(
        "session_without_its_token",
        "A client goes on with the session of another client of its principal.",
        Edit(SESSIONS, "hmac.compare_digest(known.token, hello.token)", "hmac"),
        CONNECTION_TESTS,
    ),
    bug(
        "session_of_another_principal",
        "A client goes on with a session of another principal.",
        Edit(SESSIONS, "            and known.principal == principal\n", ""),
        CONNECTION_TESTS,
    ),
    bug(
        "one_principal_takes_all_sessions",
        "A principal may have all sessions of a gateway.",
        Edit(SESSIONS, "if own_max and principal", "if not own_max and principal"),
        CONNECTION_TESTS,
    ),
    bug(
        "nodes_of_later_sessions_removed",
        "The end of a session removes a node that another client wrote since.",
        Edit(SESSIONS, " or stored.value not in values", ""),
        REQUEST_TESTS,
    ),
    bug(
        "pings_without_the_service",
        "A gateway answers pings while the metadata service answers nothing.",
        Edit(
            CONNECTION,
            "                await self._context.pings.prove()\n",
            "                pass\n",
        ),
        REQUEST_TESTS,
    ),
    bug(
        "watches_without_a_limit",
        "A client of a gateway has watches without a bound.",
        Edit(
            CONNECTION,
            "        if len(self._watches) >= context.limits.watches_max:\n",
            "        if len(self._watches) < 0:\n",
        ),
        CONNECTION_TESTS,
    ),
    bug(
        "unread_answers_without_a_limit",
        "A client of a gateway that reads no answers is not cut.",
        Edit(
            CONNECTION,
            "        if self.unread_bytes > self._context.limits.unread_bytes_max:\n",
            "        if self.unread_bytes < 0:\n",
        ),
        CONNECTION_TESTS,
    ),
)
