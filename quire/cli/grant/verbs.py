"""Declaration of the verbs of `quire grant` and their arguments.

Leaves the work to `grant_admin`.
"""

import argparse

from metadata.security.ledger_roles import LedgerRole
from quire.cli.command_line import Noun, later

ADMIN = "quire.cli.grant.grant_admin"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire grant`."""
    noun = Noun("grant", "Roles of principals on ledgers, which bookies enforce.")
    _add_grant(
        noun.verb("add", later(ADMIN, "add"), "give a principal a role on ledgers", is_audited=True)
    )
    _add_grant(
        noun.verb("remove", later(ADMIN, "remove"), "take a role on ledgers away", is_audited=True)
    )
    listing = noun.verb("list", later(ADMIN, "list_grants"), "list the roles on ledgers")
    listing.add_argument(
        "principal", metavar="PRINCIPAL", nargs="?", help="list only those of one principal"
    )
    return noun.parser


def _add_grant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principal", metavar="PRINCIPAL", help="User:NAME")
    parser.add_argument(
        "role",
        choices=[each.value for each in LedgerRole],
        metavar="ROLE",
        help="reader, writer (append alone), recoverer (fence, recover and read) or admin (all)",
    )
    parser.add_argument(
        "resource",
        metavar="LEDGERS",
        help="ledger:ID, chain:NAME, chain-prefix:PREFIX, owner:User:NAME or all",
    )
