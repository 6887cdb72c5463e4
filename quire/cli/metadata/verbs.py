"""Declaration of the verbs of `quire metadata` and their arguments.

Leaves the work to `metadata_check`, `metadata_restore`, `metadata_secure` and `quire.cli.audit`.
"""

import argparse

from quire.cli.command_line import Noun, add_consent_option, later, positive

CHECK = "quire.cli.metadata.metadata_check"
RESTORE = "quire.cli.metadata.metadata_restore"
SECURE = "quire.cli.metadata.metadata_secure"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire metadata`."""
    noun = Noun("metadata", "The stored metadata of the cluster.")
    noun.verb(
        "dump",
        later(RESTORE, "dump"),
        "print everything that a restore needs, one JSON object per line",
    )
    restore = noun.verb(
        "restore",
        later(RESTORE, "restore"),
        "write a dump into an empty address, and make it the cluster of that dump",
        is_audited=True,
    )
    restore.add_argument("file", metavar="FILE", help="output of `quire metadata dump`")
    add_consent_option(restore)
    noun.verb(
        "compare",
        later(CHECK, "compare"),
        "list what bookies hold and the metadata does not know; status 1 if there is anything",
    )
    accept = noun.verb(
        "accept-restore",
        later(RESTORE, "accept"),
        "remove again what the restored metadata does not know",
        is_audited=True,
    )
    add_consent_option(accept)
    noun.verb(
        "check",
        later(CHECK, "check"),
        "read every record and compare them; status 1 if any is wrong",
    )
    audit = noun.verb(
        "audit",
        later("quire.cli.audit", "show"),
        "list the commands that changed the metadata, with who, when and the result",
    )
    audit.add_argument(
        "--limit", type=positive, default=100, metavar="N", help="the newest N (default: 100)"
    )
    _add_secure(noun)
    return noun.parser


def _add_secure(noun: Noun) -> None:
    noun.verb(
        "identity",
        later(SECURE, "identity"),
        "print the identity of the client's file in ZooKeeper's access lists",
    )
    secure = noun.verb(
        "secure",
        later(SECURE, "secure"),
        "give each node the rights of servers and clients; the own login is one of the servers",
        is_audited=True,
    )
    for role, what in (("servers", "every right"), ("clients", "the rights of ledgers and chains")):
        secure.add_argument(
            f"--{role}",
            metavar="IDENTITY",
            action="append",
            default=[],
            help=f"a login with {what}, as digest:USER:HASH or x509:SUBJECT; several times for "
            "more",
        )
    secure.add_argument("--clients-user", metavar="NAME", help="user of the clients' login")
    secure.add_argument(
        "--clients-password-file", metavar="FILE", help="file with the password of that user"
    )
    secure.add_argument("--open", action="store_true", help="give every process all rights again")
    secure.add_argument("--dry-run", action="store_true", help="print what would change")
