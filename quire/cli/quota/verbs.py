"""Declaration of the verbs of `quire quota` and their arguments.

Leaves the work to `quota_admin`.
"""

import argparse
from typing import Final

from metadata.security.quotas import EntityType, QuotaKey
from quire.cli.command_line import Noun, add_consent_option, later

ADMIN = "quire.cli.quota.quota_admin"

OPTIONS: Final = {
    EntityType.USER: ("--user", "--default-user", "NAME", "a user, without `User:`"),
    EntityType.CLIENT_ID: ("--client-id", "--default-client-id", "ID", "a client id"),
    EntityType.IP: ("--address", "--default-address", "ADDRESS", "an IP address"),
}
"""Options of each type: for a name and for the default; and what the name is."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire quota`."""
    noun = Noun("quota", "Quotas: how much clients may use of each server.")
    setting = noun.verb(
        "set", later(ADMIN, "set_quota"), "set values of a quota; others stay", is_audited=True
    )
    listing = noun.verb("list", later(ADMIN, "list_quotas"), "list all quotas, or one")
    removal = noun.verb(
        "remove", later(ADMIN, "remove"), "remove a quota, or values of it", is_audited=True
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
    for kind, (named, default, metavar, what) in OPTIONS.items():
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
