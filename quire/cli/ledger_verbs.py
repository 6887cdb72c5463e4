"""Declaration of the verbs of `quire ledger` and their arguments."""

import argparse
from typing import Final

from quire.cli.command_line import (
    Noun,
    add_consent_option,
    entry_id,
    ledger_id,
    not_negative,
    positive,
)

DATA: Final = "quire.cli.ledger_data"
LOSS: Final = "quire.cli.ledger_loss"
RESCUE: Final = "quire.cli.ledger_rescue"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire ledger`."""
    noun = Noun(
        "ledger", "Ledgers: ordered entries, replicated, with one writer each.", "quire.cli.ledger"
    )
    _add_managing_verbs(noun)
    _add_data_verbs(noun)
    _add_copying_verbs(noun)
    return noun.parser


def _add_managing_verbs(noun: Noun) -> None:
    create = noun.verb("create", "create", "create a ledger that `append ID` can fill")
    _add_creation_options(create)
    _add_key_file(create)
    listing = noun.verb("list", "list_all", "list ledgers")
    listing.add_argument("--limit", type=positive, metavar="N", help="stop after N ledgers")
    show = noun.verb("show", "show", "print a ledger's state and fragments")
    _add_ledger(show)
    recover = noun.verb(
        "recover", "recover", "fence its writer, recover and close it", is_audited=True
    )
    _add_ledger(recover)
    recover.add_argument(
        "--unclean",
        action="store_true",
        help="in-sync mode: if no member responds, lose entries that earlier replicas do not hold",
    )
    recover.add_argument(
        "--even-if-writer-lives",
        action="store_true",
        help="with --unclean: continue although the client that writes the ledger is registered",
    )
    add_consent_option(recover)
    delete = noun.verb("delete", "delete", "delete a ledger for ever", is_audited=True)
    _add_ledger(delete, password=False)
    add_consent_option(delete)


def _add_data_verbs(noun: Noun) -> None:
    append = noun.verb(
        "append", f"{DATA}.append", "append the standard input's lines, one entry each"
    )
    append.add_argument(
        "ledger",
        type=ledger_id,
        nargs="?",
        metavar="ID",
        help="an unfilled ledger from `create` (default: a new ledger)",
    )
    append.add_argument(
        "--chunk-bytes", type=positive, metavar="N", help="entries of N bytes, not lines"
    )
    _add_creation_options(append)
    read = noun.verb("read", f"{DATA}.read", "print entries, one line each")
    _add_ledger(read)
    read.add_argument("--first", type=entry_id, default=0, metavar="N")
    read.add_argument("--last", type=entry_id, metavar="N", help="default: the last confirmed")
    tail = noun.verb("tail", f"{DATA}.tail", "print entries as they are confirmed")
    _add_ledger(tail)
    tail.add_argument("--first", type=entry_id, metavar="N", help="from entry N on")
    tail.add_argument(
        "--lines", type=not_negative, default=10, metavar="N", help="from the last N (default 10)"
    )
    for verb in (append, read, tail):
        _add_key_file(verb)
    for verb in (read, tail):
        verb.add_argument("--raw", action="store_true", help="payloads back to back, no newlines")


def _add_copying_verbs(noun: Noun) -> None:
    verify = noun.verb("verify", "verify", "read every entry of every replica")
    _add_ledger(verify)
    accept = noun.verb(
        "accept-loss",
        f"{LOSS}.accept_loss",
        "find the entries that no bookie returns; with --yes, record that they are lost for ever",
        is_audited=True,
        audited_with="yes",
    )
    _add_ledger(accept)
    accept.add_argument(
        "--even-if-unreachable",
        action="store_true",
        help="give up entries on bookies that do not answer, or cannot say what they have: for "
        "bookies that never return",
    )
    add_consent_option(accept)
    rescue = noun.verb(
        "rescue",
        f"{RESCUE}.rescue",
        "find ledgers that bookies hold and the metadata does not know, and read all their copies; "
        "with --yes, make closed ledgers of them, under their old ids",
        is_audited=True,
        audited_with="yes",
    )
    rescue.add_argument(
        "ledgers", type=ledger_id, nargs="*", metavar="ID", help="only these (default: all)"
    )
    rescue.add_argument(
        "--even-if-incomplete",
        action="store_true",
        help="without bookies that do not answer, and with missing entries recorded as lost",
    )
    _add_password(rescue)
    rescue.add_argument(
        "--key-file",
        metavar="FILE",
        help="file of keys: only ledgers that its current key decrypts, as encrypted ledgers",
    )
    add_consent_option(rescue)
    export = noun.verb("export", f"{DATA}.export", "write a ledger to a file")
    _add_ledger(export)
    export.add_argument("file", metavar="FILE", help="'-': the standard output")
    load = noun.verb("import", f"{DATA}.import_file", "create a ledger from an exported file")
    load.add_argument("file", metavar="FILE", help="'-': the standard input")
    _add_creation_options(load, quorum_from="the file")


def _add_ledger(verb: argparse.ArgumentParser, *, password: bool = True) -> None:
    verb.add_argument("ledger", type=ledger_id, metavar="ID")
    if password:
        _add_password(verb)


def _add_password(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--password-file", metavar="FILE", help="file with the ledger's password (default: empty)"
    )


def _add_key_file(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--key-file", metavar="FILE", help="keys with which payloads are encrypted")


def _add_creation_options(verb: argparse.ArgumentParser, quorum_from: str = "3, 3, 2") -> None:
    group = verb.add_argument_group("the new ledger")
    if verb.prog.split()[-1] != "append":
        group.add_argument(
            "--id", type=ledger_id, metavar="N", help="this id instead of the next free one"
        )
    group.add_argument("--ensemble", type=positive, metavar="N", help="bookies that hold it")
    group.add_argument("--write", type=positive, metavar="N", help="copies of each entry")
    group.add_argument(
        "--ack", type=positive, metavar="N", help=f"copies that confirm it (default: {quorum_from})"
    )
    group.add_argument(
        "--in-sync",
        action="store_true",
        help="all members in the in-sync set confirm, and the set changes (Kafka's rule)",
    )
    group.add_argument(
        "--min-in-sync",
        type=positive,
        metavar="N",
        help="with fewer members in sync, appends are refused",
    )
    group.add_argument(
        "--replica-lag-time-max",
        type=float,
        metavar="S",
        help="a member that lags by more seconds leaves the set (default: 10)",
    )
    group.add_argument("--digest", choices=("crc32c", "hmac-sha256"), default="crc32c")
    group.add_argument(
        "--meta", action="append", default=[], metavar="NAME=VALUE", help="custom metadata"
    )
    _add_password(verb)
