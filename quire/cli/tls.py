"""`quire tls ...`: certificates for development."""

import argparse
from pathlib import Path

from quire.cli.command_line import Noun
from quire.cli.output import Output
from quire.errors import ExitCode


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire tls`."""
    noun = Noun("tls", "TLS: certificates for development and tests.")
    init = noun.verb(
        "init",
        _init,
        "make an authority, and certificates of servers and clients; what a directory has "
        "already stays as it is",
        needs_cluster=False,
    )
    init.add_argument("directory", metavar="DIR")
    init.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name or address of the servers; several times for more",
    )
    init.add_argument(
        "--client",
        metavar="NAME",
        action="append",
        help="a client, by its common name; several times for more (default: client)",
    )
    init.add_argument(
        "--admin-token",
        action="store_true",
        help="also make admin-token, a secret for admin_token_file and for Prometheus",
    )
    init.add_argument(
        "--split",
        action="store_true",
        help="also copy what each server and client needs to a directory of its own, and ca.pem and"
        " the token to one for Prometheus; none has the key of the authority or of another",
    )
    return noun.parser


def _init(arguments: argparse.Namespace, output: Output) -> int:
    from quire.local.secure_directory import CLIENT_NAME, SecureDirectory

    directory = SecureDirectory(Path(arguments.directory).absolute())
    clients = arguments.client or (CLIENT_NAME,)
    made = directory.fill(arguments.host, clients)
    with output.listing("name", "certificate", "key", "client_file") as listing:
        for name in made:
            certificate = directory.path / f"{name}.pem"
            listing.add(
                {
                    "name": name,
                    "certificate": str(certificate),
                    "key": str(directory.path / f"{name}-key.pem"),
                    "client_file": directory.client_file(name),
                }
            )
    if arguments.admin_token:
        output.remark(f"the token of admin ports is in {directory.fill_admin_token()}")
    if arguments.split:
        output.remark(f"each has what it needs in {', '.join(directory.split(clients))}")
    if not made:
        output.remark(f"{directory.path} has these certificates already")
    return ExitCode.DONE
