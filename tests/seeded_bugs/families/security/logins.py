"""Seeded bugs of logins: mechanisms of SASL, and what a connection may do before its login, during
and after it.

Leaves tokens to `tokens`, and the rights of who has logged in to `rights`.

Source: docs/security.md, "Logins"; KIP-43, KIP-84, KIP-152, KIP-368; RFC 4422, RFC 5802;
CVE-2024-56128.
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

SCRAM: Final = "security/sasl/scram.py"
SCRAM_CLIENT: Final = "security/sasl/scram_client.py"
PLAIN: Final = "security/sasl/plain.py"
LOGINS: Final = "broker_layer/server/access/logins.py"
SESSIONS: Final = "security/sasl/sessions.py"
CONNECTION: Final = "broker_layer/server/connections/connection.py"

SCRAM_TESTS: Final = (units("tests/unit/security/sasl/test_scram.py"),)
CLIENT_TESTS: Final = (units("tests/unit/security/sasl/test_scram_client.py"),)
PLAIN_TESTS: Final = (units("tests/unit/security/sasl/test_plain.py"),)
USER_TABLE_TESTS: Final = (units("tests/unit/metadata/security/test_user_table.py"),)
GATE_TESTS: Final = (units("tests/unit/broker_layer/server/access/test_login_gate.py"),)

RULES: Final = ("security.md#logins",)

BUGS = (
    # -- mechanisms
    SeededBug(
        "only_the_end_of_the_nonce_is_checked",
        "A proof is taken for a nonce that only ends with the one of the server.",
        ("CVE-2024-56128", "RFC 5802"),
        (
            Edit(
                SCRAM,
                "if not hmac.compare_digest(final.nonce.encode(), nonce.encode()):",
                "if not final.nonce.endswith(self._own_nonce):",
            ),
        ),
        SCRAM_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "proof_of_scram_not_checked",
        "A client of SCRAM is taken for a known user whatever its proof is.",
        ("RFC 5802",),
        (Edit(SCRAM, "        if not is_right:\n", "        if not final.proof:\n"),),
        SCRAM_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "channel_binding_not_compared",
        "The client's last message may contradict the first one about channel binding.",
        ("RFC 5802",),
        (
            Edit(
                SCRAM,
                "if not hmac.compare_digest(final.binding, first.binding):",
                "if not final.binding:",
            ),
        ),
        SCRAM_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "decoy_is_a_password",
        "A proof of SCRAM that fits the decoy of an unknown user is taken.",
        ("RFC 5802",),
        (
            Edit(
                SCRAM,
                "        if self._credential is None:\n",
                "        if self._credential is None and not is_right:\n",
            ),
        ),
        SCRAM_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "decoys_only_for_unknown_users",
        "Only for an unknown user a decoy is made, so its first answer comes later.",
        ("RFC 5802",),
        (
            Edit(
                SCRAM,
                "        decoy = self._decoys.credential(first.user, self._mechanism)\n"
                "        self._checked = shown = self._credential or decoy\n",
                "        self._checked = shown = self._credential or self._decoys.credential(\n"
                "            first.user, self._mechanism\n"
                "        )\n",
            ),
        ),
        SCRAM_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "decoys_have_forms_that_no_user_has",
        "An unknown user is answered with a salt of a tool that made no user.",
        ("RFC 5802",),
        (
            Edit(
                "metadata/security/user_table.py",
                "        self.forms.change(before.credentials if before else (), "
                "after.credentials if after else ())\n",
                "",
            ),
        ),
        USER_TABLE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "iterations_show_the_user",
        "PLAIN takes as long as the iterations that are stored for a user.",
        RULES,
        (Edit(PLAIN, "if iterations < ITERATIONS_MAX:", "if iterations < 0:"),),
        PLAIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "decoy_is_a_password_of_plain",
        "A password that fits the decoy of an unknown user is taken.",
        RULES,
        (Edit(PLAIN, "is_own & _fits(each, password)", "_fits(each, password)"),),
        PLAIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "few_iterations_taken",
        "A client computes a proof with as few iterations as a server wants.",
        ("KIP-84",),
        (
            Edit(
                "security/sasl/scram_messages.py",
                "        check_iterations(iterations)\n",
                "        check_iterations(max(iterations, ITERATIONS_MIN))\n",
            ),
        ),
        CLIENT_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "server_proves_nothing",
        "A client takes any signature of a server.",
        ("RFC 5802",),
        (
            Edit(
                SCRAM_CLIENT,
                "if not hmac.compare_digest(parse_server_final(message), self._signature):",
                "if not parse_server_final(message):",
            ),
        ),
        CLIENT_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "nonce_of_another_client",
        "A client takes a nonce that does not begin with its own part.",
        ("RFC 5802",),
        (
            Edit(
                SCRAM_CLIENT,
                "if not first.nonce.startswith(self._nonce) or len",
                "if len",
            ),
        ),
        CLIENT_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "login_for_another_user",
        "A client may log in with its password as another user.",
        ("RFC 4422",),
        (
            Edit(
                "security/sasl/user_names.py",
                'if authorization not in ("", user):',
                "if name_problem(authorization or user):",
            ),
        ),
        PLAIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "password_sent_without_tls",
        "PLAIN is offered on listeners without TLS.",
        RULES,
        (
            Edit(
                "broker_layer/security/login_options.py",
                "(Mechanism.PLAIN, Mechanism.OAUTHBEARER)",
                "(Mechanism.OAUTHBEARER,)",
            ),
        ),
        (units("tests/unit/broker_layer/security/test_login_options.py"),),
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "disabled_mechanism_taken",
        "A client may use a mechanism that is not enabled.",
        RULES,
        (
            Edit(
                "security/sasl/authenticator.py",
                "if name not in self.enabled:",
                "if name not in list(Mechanism):",
            ),
        ),
        (units("tests/unit/security/sasl/test_authenticator.py"),),
        CLIENTS_TRUSTED,
    ),
    # -- connections
    SeededBug(
        "metadata_before_the_login",
        "Metadata is served before the login.",
        ("KIP-43",),
        (
            Edit(
                LOGINS,
                "        elif not is_done:\n",
                "        elif not is_done and api_key != ApiKey.METADATA:\n",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "served_once_a_login_begins",
        "A client is served as soon as it has begun an exchange.",
        ("KIP-43",),
        (
            Edit(
                LOGINS,
                "        elif not is_done:\n",
                "        elif not is_done and not self._session.has_begun:\n",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "another_user_logs_in_again",
        "A client that logs in again may be another user than before.",
        ("KIP-368",),
        (
            Edit(
                SESSIONS,
                "if self.is_done and principal != self.principal:",
                "if self.is_done and not principal.name:",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "session_without_an_end",
        "A client whose session has ended is still served.",
        ("KIP-368",),
        (
            Edit(
                LOGINS,
                "self._parts.now() >= self._ends_s:",
                "self._parts.now() < self._began_s:",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "session_outlives_its_token",
        "A session has the length that the broker allows, though its token ends before.",
        ("KIP-368",),
        (
            Edit(
                LOGINS,
                "if step.expires_at_s is not None:",
                "if step.expires_at_s is not None and not limits_ms:",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "removed_user_stays_connected",
        "A connection stays open when the password of its user is changed or removed.",
        RULES,
        (
            Edit(
                SESSIONS,
                "if is_own and self._proved_by(mechanisms):",
                "if is_own and not mechanisms:",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "password_changed_during_the_login",
        "A login that began with a password ends well after the password was removed.",
        RULES,
        (Edit(SESSIONS, "            self._revoked.add(user)\n", "            pass\n"),),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "login_without_a_deadline",
        "A client that has begun an exchange may take any time for it.",
        RULES,
        (
            Edit(
                LOGINS,
                "if self._session.is_done or now_s",
                "if self._session.is_done or self._session.has_begun or now_s",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "large_frame_before_the_login",
        "A client may send frames of the full size before its login.",
        RULES,
        (
            Edit(
                CONNECTION,
                "frame_bytes_max = min(frame_bytes_max, LOGIN_FRAME_BYTES_MAX)",
                "frame_bytes_max = max(frame_bytes_max, LOGIN_FRAME_BYTES_MAX)",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "logins_not_bounded",
        "Any number of clients may be about to log in.",
        RULES,
        (
            Edit(
                SESSIONS,
                "if len(self._under_way) >= self._under_way_max:",
                "if len(self._done) >= self._under_way_max:",
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "refused_login_not_logged",
        "A login that is refused is not in the audit log.",
        ("security.md#audit-log",),
        (
            Edit(
                LOGINS,
                '        self._parts.audit.refused("login", who=who, peer=peer, reason=why)\n',
                '        assert (who, peer, why) != ("", "", "")\n',
            ),
        ),
        GATE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "password_on_an_open_network",
        "A broker takes credentials of users on connections that others can read.",
        ("security.md#users",),
        (
            Edit(
                "broker_layer/security/user_handlers.py",
                "if not context.is_private:",
                "if context.is_private and not context.client_host:",
            ),
        ),
        (units("tests/unit/broker_layer/security/test_user_handlers.py"),),
        CLIENTS_TRUSTED,
    ),
)
