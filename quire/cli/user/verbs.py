"""Declaration of the verbs of `quire user` and their arguments.

Leaves the work to `user_admin`.
"""

import argparse

from quire.cli.command_line import Noun, later
from quire.cli.user.password_source import PASSWORD_VARIABLE
from quire.identity.sasl.credentials import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    check_iterations,
)

ADMIN = "quire.cli.user.user_admin"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire user`."""
    noun = Noun("user", "Users, who log in to brokers with a name and a password (SCRAM).")
    add = noun.verb("add", later(ADMIN, "add"), "create a user", is_audited=True)
    _add_name(add)
    _add_password_options(add, "all")
    password = noun.verb(
        "password",
        later(ADMIN, "change_password"),
        "change a user's password; the old one ends for every mechanism",
        is_audited=True,
    )
    _add_name(password)
    _add_password_options(password, "those of the old password")
    _add_name(
        noun.verb(
            "remove",
            later(ADMIN, "remove"),
            "remove a user; it cannot log in any more",
            is_audited=True,
        )
    )
    noun.verb("list", later(ADMIN, "list_users"), "list the users and their mechanisms")
    _add_name(
        noun.verb("show", later(ADMIN, "show"), "show the mechanisms and iterations of a user")
    )
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
        choices=[each.value for each in ScramMechanism],
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
