"""Declaration of `quire acl`, `user`, `grant` and `quota`, and of their arguments."""

import argparse
from typing import Final

from metadata.security.ledger_roles import LedgerRole
from metadata.security.quotas import EntityType, QuotaKey
from quire.cli.command_line import Noun, add_consent_option
from quire.identity.sasl.credentials import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    check_iterations,
)

RIGHTS: Final = "quire.cli.rights"
PASSWORD_VARIABLE: Final = "QUIRE_USER_PASSWORD"


def acl_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire acl`."""
    noun = Noun(
        "acl",
        "Access control lists: what clients of brokers may do, with an authorizer.",
        RIGHTS,
    )
    add = noun.verb("add", "add_acls", "store ACLs, which brokers apply at once", is_audited=True)
    listing = noun.verb("list", "list_acls", "list all ACLs, or some")
    remove = noun.verb(
        "remove", "remove_acls", "remove the ACLs that the arguments name", is_audited=True
    )
    for verb in (add, listing, remove):
        _add_resources(verb)
        _add_principals(verb)
    add.add_argument(
        "--prefixed", action="store_true", help="the names are beginnings of names of resources"
    )
    for verb in (listing, remove):
        verb.add_argument(
            "--pattern",
            choices=("any", "match", "literal", "prefixed"),
            default="any",
            help="kind of the names in the ACLs; match: all ACLs that apply to the named resource",
        )
    add_consent_option(remove)
    return noun.parser


def _add_resources(verb: argparse.ArgumentParser) -> None:
    for option, what in (
        ("--topic", "a topic"),
        ("--group", "a consumer group"),
        ("--transactional-id", "a transactional id"),
    ):
        text = f"{what}; * for all; may be given several times"
        verb.add_argument(option, action="append", default=[], metavar="NAME", help=text)
    verb.add_argument("--cluster", action="store_true", help="the cluster")


def _add_principals(verb: argparse.ArgumentParser) -> None:
    for option, what in (("--allow", "allowed"), ("--deny", "denied, which wins")):
        verb.add_argument(
            option,
            action="append",
            default=[],
            metavar="PRINCIPAL",
            help=f"the client to which the operations are {what}: User:NAME, or User:* for all",
        )
    verb.add_argument(
        "--operation",
        action="append",
        default=[],
        type=str.upper,
        metavar="OPERATION",
        help="such as READ, WRITE or ALL; may be given several times",
    )
    verb.add_argument("--host", metavar="ADDRESS", help="only clients with this address")


def user_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire user`."""
    noun = Noun(
        "user",
        "Users, who log in to brokers with a name and a password (SCRAM).",
        RIGHTS,
    )
    add = noun.verb("add", "add_user", "create a user", is_audited=True)
    _add_name(add)
    _add_password_options(add, "all")
    password = noun.verb(
        "password",
        "change_password",
        "change a user's password; the old one ends for every mechanism",
        is_audited=True,
    )
    _add_name(password)
    _add_password_options(password, "those of the old password")
    _add_name(
        noun.verb(
            "remove", "remove_user", "remove a user; it cannot log in any more", is_audited=True
        )
    )
    noun.verb("list", "list_users", "list the users and their mechanisms")
    _add_name(noun.verb("show", "show_user", "show the mechanisms and iterations of a user"))
    return noun.parser


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="NAME")


def _add_password_options(parser: argparse.ArgumentParser, default: str) -> None:
    parser.allow_abbrev = False  # `--password SECRET` would be a file, which an error names
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="file with the password, which only its owner may read; `-` is the standard input "
        f"(default: ${PASSWORD_VARIABLE})",
    )
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=[mechanism.value for mechanism in ScramMechanism],
        help=f"mechanism of the password; twice for both (default: {default})",
    )
    parser.add_argument(
        "--iterations",
        type=_iterations,
        default=ITERATIONS_DEFAULT,
        metavar="N",
        help=f"cost of one guess of the password, {ITERATIONS_MIN} to {ITERATIONS_MAX} "
        f"(default: {ITERATIONS_DEFAULT})",
    )


def _iterations(text: str) -> int:
    try:
        value = int(text)
        check_iterations(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return value


def grant_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire grant`."""
    noun = Noun("grant", "Roles of principals on ledgers, which bookies enforce.", RIGHTS)
    _add_grant(noun.verb("add", "add_grant", "give a principal a role on ledgers", is_audited=True))
    _add_grant(noun.verb("remove", "remove_grant", "take a role on ledgers away", is_audited=True))
    listing = noun.verb("list", "list_grants", "list the roles on ledgers")
    listing.add_argument(
        "principal", metavar="PRINCIPAL", nargs="?", help="list only those of one principal"
    )
    return noun.parser


def _add_grant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principal", metavar="PRINCIPAL", help="User:NAME")
    parser.add_argument(
        "role",
        choices=[role.value for role in LedgerRole],
        metavar="ROLE",
        help="reader, writer (append alone), recoverer (fence, recover and read) or admin (all)",
    )
    parser.add_argument(
        "resource",
        metavar="LEDGERS",
        help="ledger:ID, chain:NAME, chain-prefix:PREFIX, owner:User:NAME or all",
    )


ENTITY_OPTIONS: Final = {
    EntityType.USER: ("--user", "--default-user", "NAME", "a user, without `User:`"),
    EntityType.CLIENT_ID: ("--client-id", "--default-client-id", "ID", "a client id"),
    EntityType.IP: ("--address", "--default-address", "ADDRESS", "an IP address"),
}
"""Options of each type: for a name and for the default; and what the name is."""


def quota_parser() -> argparse.ArgumentParser:
    """Return the parser of `quire quota`."""
    noun = Noun("quota", "Quotas: how much clients may use of each server.", RIGHTS)
    setting = noun.verb("set", "set_quota", "set values of a quota; others stay", is_audited=True)
    listing = noun.verb("list", "list_quotas", "list all quotas, or one")
    removal = noun.verb(
        "remove", "remove_quota", "remove a quota, or values of it", is_audited=True
    )
    for verb in (setting, listing, removal):
        _add_entity(verb)
    known = ", ".join(QuotaKey)
    setting.add_argument(
        "values", metavar="KEY=VALUE", nargs="+", help=f"value of a key, one of {known}"
    )
    removal.add_argument(
        "keys", metavar="KEY", nargs="*", help="remove only the values of these keys"
    )
    add_consent_option(removal)
    return noun.parser


def _add_entity(verb: argparse.ArgumentParser) -> None:
    for kind, (named, default, metavar, what) in ENTITY_OPTIONS.items():
        choice = verb.add_mutually_exclusive_group()
        choice.add_argument(
            named, dest=f"named_{kind.name}", metavar=metavar, help=f"the quota is for {what}"
        )
        choice.add_argument(
            default,
            dest=f"default_{kind.name}",
            action="store_true",
            help=f"the quota is for each {kind.value} that has none of its own",
        )
