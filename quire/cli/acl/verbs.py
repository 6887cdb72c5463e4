"""Declaration of the verbs of `quire acl` and their arguments.

Leaves the work to `acl_lists`, which is imported only when needed.
"""

import argparse

from quire.cli.command_line import Noun, add_consent_option, later

LISTS = "quire.cli.acl.acl_lists"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire acl`."""
    noun = Noun("acl", "Access control lists: what clients of brokers may do, with an authorizer.")
    add = noun.verb(
        "add", later(LISTS, "add"), "store ACLs, which brokers apply at once", is_audited=True
    )
    listing = noun.verb("list", later(LISTS, "list_acls"), "list all ACLs, or some")
    remove = noun.verb(
        "remove", later(LISTS, "remove"), "remove the ACLs that the arguments name", is_audited=True
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
