"""Seeded bugs of logins at bookies: what a connection may do before its login, during and after it,
and what a client takes for a bookie.

Leaves the mechanisms of SASL, and what bookies share with brokers, to `logins`.

Source: docs/security.md, "At bookies"; protocol rule 12.6.
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

GREETING: Final = "bookie/server/greeting.py"
CONTEXT: Final = "bookie/server/server_context.py"
LOGINS: Final = "bookie/server/client_logins.py"
CLIENT: Final = "ledger_client/bookies/bookie_login.py"
LINK: Final = "ledger_client/bookies/pool_link.py"

SERVER: Final = (units("tests/unit/bookie/server/test_client_logins.py"),)
SESSIONS: Final = (units("tests/unit/bookie/server/test_login_sessions.py"),)
CLIENTS: Final = (units("tests/unit/ledger_client/bookies/test_bookie_login.py"),)

RULES: Final = ("security.md#at-bookies",)

BUGS = (
    SeededBug(
        "a_request_before_the_login_at_a_bookie",
        "A bookie serves a client after its hello, though its login is due.",
        RULES,
        (
            Edit(
                GREETING,
                "        if self._session is None:\n            self._welcome",
                "        self._door.welcome(self._guest)\n"
                "        if self._session is None:\n            self._welcome",
            ),
        ),
        SERVER,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_login_is_not_needed",
        "A bookie that needs logins serves a client that only knows them.",
        RULES,
        (
            Edit(
                CONTEXT,
                "is_required and not hello.features & LOGIN_DUE",
                "is_required and not hello.features",
            ),
        ),
        SERVER,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "the_key_of_repair_is_a_login",
        "A bookie that needs logins serves a client that presents the key of repair without one.",
        RULES,
        (
            Edit(
                CONTEXT,
                "elif self._lacks_login(hello):",
                "elif self._lacks_login(hello) and not hello.credentials:",
            ),
        ),
        SERVER,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "one_message_is_a_login",
        "A bookie serves a client after the first message of a login.",
        RULES,
        (
            Edit(
                GREETING,
                "        if not step.is_complete:\n",
                "        if not step.challenge:\n",
            ),
        ),
        SERVER,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_password_is_sent_to_a_bookie",
        "A bookie takes a mechanism that sends the password.",
        RULES,
        (
            Edit(
                LOGINS,
                "(Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256)",
                "(Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256, Mechanism.PLAIN)",
            ),
        ),
        SERVER,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "two_messages_of_a_login_at_once",
        "A bookie takes a message of a login while it answers the one before.",
        RULES,
        (
            Edit(
                GREETING,
                "case ContinueLogin() if step is _Step.PROOF:",
                "case ContinueLogin() if step in (_Step.PROOF, _Step.BUSY):",
            ),
        ),
        SERVER,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_login_at_a_bookie_without_a_deadline",
        "A client that logs in at a bookie may take any time for it.",
        RULES,
        (
            Edit(
                GREETING,
                "is_late = self._context.now() - self._began_s > LOGIN_S_MAX",
                "is_late = self._began_s > self._context.now()",
            ),
        ),
        SESSIONS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_large_frame_before_the_login_at_a_bookie",
        "A bookie takes frames of the full size before a login.",
        RULES,
        (
            Edit(
                GREETING,
                "            self._door.allow(FRAME_BYTES_MAX)\n",
                "            self._door.allow(context.limits.frame_bytes_max)\n",
            ),
        ),
        SESSIONS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "logins_at_a_bookie_are_not_bounded",
        "Any number of clients may be about to log in at a bookie.",
        RULES,
        (
            Edit(
                LOGINS,
                "SaslAuthenticator(MECHANISMS, parts), UNDER_WAY_MAX)",
                "SaslAuthenticator(MECHANISMS, parts), 2**31)",
            ),
        ),
        SESSIONS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_removed_user_stays_connected_to_a_bookie",
        "A bookie does not end the connections of a user that is removed.",
        RULES,
        (
            Edit(
                LOGINS,
                "self._closing.callback(self._users.on_revocation(sessions.revoke))",
                "self._closing.callback(self._users.on_revocation(lambda *_: None))",
            ),
        ),
        SESSIONS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_refused_login_at_a_bookie_is_not_logged",
        "A login that a bookie refuses is not in the audit log.",
        RULES,
        (
            Edit(
                GREETING,
                "        context.log.audit.refused(EVENT, who=",
                "        dict(act=EVENT, who=",
            ),
        ),
        SESSIONS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "passwords_are_tried_without_a_pause",
        "A bookie refuses a login at once.",
        RULES,
        (
            Edit(
                GREETING,
                "await asyncio.sleep(REFUSAL_DELAY_S)",
                "await asyncio.sleep(0)",
            ),
        ),
        SERVER,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_login_keeps_the_principal_of_the_certificate",
        "A client that logs in has the roles of its certificate.",
        RULES,
        (
            Edit(
                GREETING,
                "self._welcome(Guest(role, principal, names_bookie, session.principal))",
                "self._welcome(self._guest)",
            ),
        ),
        SESSIONS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_bookie_proves_nothing",
        "A client uses a bookie that did not prove that it knows the password.",
        RULES,
        (
            Edit(
                CLIENT,
                "        message = await exchange",
                "        message = None if reply.complete else await exchange",
            ),
        ),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "an_older_bookie_takes_a_client_for_another",
        "A client with a login uses a bookie that does not know logins.",
        RULES,
        (
            Edit(
                CLIENT,
                "if not reply.features & LOGINS_KNOWN:",
                "if not reply.features & LOGINS_KNOWN and not reply.bookie_id:",
            ),
        ),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_refused_login_is_tried_again_at_once",
        "A client tries a refused login again as often as a lost connection.",
        RULES,
        (
            Edit(
                LINK,
                "        if why.status is Status.UNAUTHORIZED:\n            longest = max(",
                "        if why.status is Status.OK:\n            longest = max(",
            ),
        ),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
)
