"""Seeded bugs of TLS, of the principals of certificates, of files with secrets, of admin ports and
of the audit log.

Leaves logins to `logins` and `tokens`, and rights to `rights`.

Source: docs/security.md; KIP-371.
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

SERVER_TLS: Final = "security/server_tls.py"
CLIENT_TLS: Final = "security/tls.py"
NAMES: Final = "security/certificate_names.py"
SECRETS: Final = "security/secret_files.py"
ZOOKEEPER: Final = "security/zookeeper_access.py"
OPTIONS: Final = "serving/security_options.py"
LISTENING: Final = "serving/tls_listening.py"
ADMIN: Final = "serving/admin.py"
AUDIT: Final = "serving/audit_log.py"

TLS_TESTS: Final = (units("tests/unit/security/test_tls.py"),)
NAME_TESTS: Final = (units("tests/unit/security/test_certificate_names.py"),)
SECRET_TESTS: Final = (units("tests/unit/security/test_secret_files.py"),)
OPTION_TESTS: Final = (units("tests/unit/serving/test_security_options.py"),)
LISTENING_TESTS: Final = (units("tests/unit/serving/test_tls_listening.py"),)
ADMIN_TESTS: Final = (units("tests/unit/serving/test_admin_access.py"),)
AUDIT_TESTS: Final = (units("tests/unit/serving/test_audit_log.py"),)

CERTIFICATES: Final = ("security.md#certificates",)
SERVER: Final = ("security.md#a-server",)
AUDIT_LOG: Final = ("security.md#audit-log",)

BUGS = (
    # -- TLS
    SeededBug(
        "required_certificate_is_optional",
        "A server that requires clients' certificates takes clients without one.",
        SERVER,
        (
            Edit(
                SERVER_TLS,
                "ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL",
                "ssl.CERT_OPTIONAL",
            ),
        ),
        TLS_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "client_certificate_not_verified",
        "A server does not verify the certificates of its clients.",
        SERVER,
        (
            Edit(
                SERVER_TLS,
                "ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL",
                "ssl.CERT_NONE",
            ),
        ),
        TLS_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "server_takes_old_tls",
        "A server takes connections with every version of TLS that the library has.",
        SERVER,
        (Edit(SERVER_TLS, "ssl.TLSVersion.TLSv1_2", "ssl.TLSVersion.MINIMUM_SUPPORTED"),),
        TLS_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "client_takes_old_tls",
        "A client connects with every version of TLS that the library has.",
        SERVER,
        (Edit(CLIENT_TLS, "ssl.TLSVersion.TLSv1_2", "ssl.TLSVersion.MINIMUM_SUPPORTED"),),
        TLS_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "host_name_not_checked",
        "A client takes a certificate of any server of the authority.",
        SERVER,
        (
            Edit(
                CLIENT_TLS,
                "    context.minimum_version = ssl.TLSVersion.TLSv1_2\n",
                "    context.minimum_version = ssl.TLSVersion.TLSv1_2\n"
                "    context.check_hostname = False\n",
            ),
        ),
        TLS_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "optional_tls_is_enough_elsewhere",
        "A server with optional TLS listens on other than loopback addresses.",
        SERVER,
        (
            Edit(
                OPTIONS,
                "is_open = self.tls_mode is not TlsMode.REQUIRED",
                "is_open = self.tls_mode is TlsMode.OFF",
            ),
        ),
        OPTION_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "name_that_begins_like_localhost",
        "A host whose name begins with localhost is taken for this machine.",
        SERVER,
        (Edit(OPTIONS, "return host == LOCAL_NAME", "return host.startswith(LOCAL_NAME)"),),
        OPTION_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "listener_with_logins_needs_no_tls",
        "A broker listens without TLS on other than loopback addresses if its clients log in.",
        ("security.md#a-broker",),
        (
            Edit(
                "broker_layer/options.py",
                "is_open = not protocols[each.name].uses_tls and",
                "is_open = protocols[each.name] is SecurityProtocol.PLAINTEXT and",
            ),
        ),
        (units("tests/unit/broker_layer/security/test_protocols.py"),),
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "every_client_changes_a_server",
        "Each client whose certificate an admin port admits may change the server.",
        SERVER,
        (Edit(ADMIN, "return self.who(request) in self.changers", "return True"),),
        ADMIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "admin_port_of_a_closed_network",
        "An admin port on other than loopback addresses needs no proof with allow_plaintext.",
        SERVER,
        (
            Edit(
                OPTIONS,
                "if is_loopback(host) or self.admin_token_file:",
                "if is_loopback(host) or self.admin_token_file or self.allow_plaintext:",
            ),
        ),
        OPTION_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "required_tls_is_optional",
        "A listener that requires TLS serves connections without it.",
        SERVER,
        (Edit(LISTENING, "listening.is_required or await", "await"),),
        LISTENING_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "handshakes_not_bounded",
        "Any number of handshakes may be under way at a time.",
        SERVER,
        (
            Edit(
                LISTENING,
                "return is_slow_enough and len(self._handshakes) < limits.handshakes_max",
                "return is_slow_enough",
            ),
        ),
        LISTENING_TESTS,
        CLIENTS_TRUSTED,
    ),
    # -- principals of certificates
    SeededBug(
        "mapping_rule_matches_a_part",
        "A mapping rule applies to a subject of which its pattern matches only a part.",
        ("KIP-371",),
        (Edit(NAMES, "self.pattern.fullmatch(subject)", "self.pattern.search(subject)"),),
        NAME_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "subject_without_a_rule",
        "A client whose subject no mapping rule matches has its subject as its name.",
        ("KIP-371",),
        (Edit(NAMES, 'if each is not None), "")', "if each is not None), subject)"),),
        NAME_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "value_of_a_subject_is_several_parts",
        "A comma in a value of a subject is not escaped: CN='a,OU=admin' looks like two parts.",
        ("KIP-371",),
        (Edit(NAMES, r'escaped = _SPECIAL.sub(r"\\\1", value)', "escaped = value"),),
        NAME_TESTS,
        CLIENTS_TRUSTED,
    ),
    # -- files with secrets
    SeededBug(
        "key_of_tls_readable_by_others",
        "A key of TLS is taken from a file that other users may read.",
        CERTIFICATES,
        (Edit(CLIENT_TLS, "    check_private(files.key)\n", ""),),
        TLS_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "secret_of_a_group",
        "A secret is taken from a file that the users of its group may read or change.",
        CERTIFICATES,
        (Edit(SECRETS, "stat.S_IRWXG | stat.S_IRWXO", "stat.S_IRWXO"),),
        SECRET_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "keys_of_encryption_readable_by_others",
        "The keys of encryption are taken from a file that other users may read.",
        ("encryption.md#keys",),
        (
            Edit(
                "ledger_client/encryption/key_file.py",
                "KEY_FILE_BYTES_MAX, is_private=True",
                "KEY_FILE_BYTES_MAX, is_private=False",
            ),
        ),
        (units("tests/unit/ledger_client/encryption/test_keys.py"),),
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "secret_in_an_error",
        "The error for a secret that is not text shows its bytes.",
        AUDIT_LOG,
        (
            Edit(
                SECRETS,
                "    except UnicodeDecodeError:\n"
                '        raise SecretError(path, "it is not UTF-8 text") from None\n',
                "    except UnicodeDecodeError as error:\n"
                "        why = f'it is not UTF-8 text: {error.object!r}'\n"
                "        raise SecretError(path, why) from None\n",
            ),
        ),
        SECRET_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "secret_behind_an_error",
        "The error for a secret that is not text has the error with its bytes as its cause.",
        AUDIT_LOG,
        (
            Edit(
                SECRETS,
                "    except UnicodeDecodeError:\n"
                '        raise SecretError(path, "it is not UTF-8 text") from None\n',
                "    except UnicodeDecodeError as error:\n"
                '        raise SecretError(path, "it is not UTF-8 text") from error\n',
            ),
        ),
        SECRET_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "password_to_the_second_server",
        "A password of ZooKeeper is sent without TLS if only the first server is this machine.",
        ("security.md#logins-and-rights",),
        (Edit(ZOOKEEPER, "for host in hosts:", "for host in hosts[:1]:"),),
        (units("tests/unit/security/test_client_file.py"),),
        CLIENTS_TRUSTED,
    ),
    # -- admin ports
    SeededBug(
        "token_compared_as_a_prefix",
        "An admin port takes each token that begins with the right one.",
        SERVER,
        (
            Edit(
                ADMIN,
                "hmac.compare_digest(given, wanted)",
                "hmac.compare_digest(given[: len(wanted)], wanted)",
            ),
        ),
        ADMIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "beginning_of_a_token_is_enough",
        "An admin port takes the beginning of its token, and an empty one.",
        SERVER,
        (Edit(ADMIN, "hmac.compare_digest(given, wanted)", "wanted.startswith(given)"),),
        ADMIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "tls_taken_for_a_certificate",
        "An admin port serves a client with TLS that has no certificate.",
        SERVER,
        (
            Edit(
                ADMIN,
                'if self.takes_certificates and request.get_extra_info("peercert"):',
                "if self.takes_certificates and self.context is not None:",
            ),
        ),
        ADMIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "metrics_are_for_everybody",
        "An admin port answers requests for metrics without a proof.",
        SERVER,
        (Edit(ADMIN, '("/livez", "/readyz")', '("/livez", "/readyz", "/metrics")'),),
        ADMIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "web_pages_may_change_a_server",
        "An admin port serves requests of web pages that change something.",
        SERVER,
        (Edit(ADMIN, '"Origin" in request.headers', '"origin" in request.query'),),
        (units("tests/unit/serving/test_admin.py"),),
        CLIENTS_TRUSTED,
    ),
    # -- audit log
    SeededBug(
        "refused_handshake_not_logged",
        "A handshake that fails is not in the audit log.",
        AUDIT_LOG,
        (
            Edit(
                LISTENING,
                'listening.log.audit.refused("handshake", who="unknown", peer=peer, reason=reason)',
                'listening.log.info("handshake", peer=peer, reason=reason)',
            ),
        ),
        LISTENING_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "refused_handshakes_have_no_peer",
        "The audit log does not name the peer of a refused handshake, so all share one limit.",
        AUDIT_LOG,
        (Edit(LISTENING, "        peer = _peer(connection)", '        peer = "gone"'),),
        LISTENING_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "refused_admin_request_not_logged",
        "A request that an admin port refuses is not in the audit log.",
        AUDIT_LOG,
        (
            Edit(
                ADMIN,
                "        if not access.admits(request):\n"
                "            log.audit.refused(act, who=access.who(request), peer=peer)\n",
                "        if not access.admits(request):\n",
            ),
        ),
        ADMIN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "one_peer_fills_the_audit_log",
        "A peer causes a line of the audit log for each of its refusals.",
        AUDIT_LOG,
        (Edit(AUDIT, "if known.lines < LINES_PER_PEER_MAX:", "if known.lines:"),),
        AUDIT_TESTS,
        CLIENTS_TRUSTED,
    ),
)
