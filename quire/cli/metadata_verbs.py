"""Declaration of the verbs of `quire metadata` and their arguments."""

import argparse
from typing import Final

from quire.cli.command_line import Noun, add_consent_option, positive

AUDIT: Final = "quire.cli.audit"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire metadata`."""
    noun = Noun("metadata", "The stored metadata of the cluster.", "quire.cli.metadata")
    noun.verb("dump", "dump", "print everything that a restore needs, one JSON object per line")
    restore = noun.verb(
        "restore",
        "restore",
        "write a dump into an empty address, and make it the cluster of that dump",
        is_audited=True,
    )
    restore.add_argument("file", metavar="FILE", help="output of `quire metadata dump`")
    add_consent_option(restore)
    noun.verb(
        "compare",
        "compare",
        "list what bookies hold and the metadata does not know; status 1 if there is anything",
    )
    accept = noun.verb(
        "accept-restore",
        "accept",
        "remove again what the restored metadata does not know",
        is_audited=True,
    )
    add_consent_option(accept)
    noun.verb("check", "check", "read every record and compare them; status 1 if any is wrong")
    audit = noun.verb(
        "audit",
        f"{AUDIT}.show",
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
        "identity",
        "print the identity of the client's file in ZooKeeper's access lists",
    )
    secure = noun.verb(
        "secure",
        "secure",
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
