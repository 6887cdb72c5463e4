"""Declaration of the verbs of `quire bookie` and their arguments.

The modules that do the work are imported only when a verb runs: a bookie's process does not load
the client.
"""

import argparse
from typing import Final

from quire.cli.command_line import Noun, entry_id, ledger_id, not_negative, positive
from quire.cli.servers import add_option_flags_later

OFFLINE: Final = "quire.cli.bookie_offline"
REPLICA: Final = "quire.cli.bookie_replica"
SERVER: Final = "quire.cli.bookie_server"
ID_HELP = "the bookie's id, as in `quire bookie list`"
DIR_HELP = "the bookie's data_dir"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire bookie`."""
    noun = Noun("bookie", "Bookies: the processes that store entries.", "quire.cli.bookie")
    make = noun.verb(
        "format",
        f"{SERVER}.format_directory",
        "create a bookie in an empty directory",
        needs_cluster=False,
    )
    add_option_flags_later(make, "bookie")
    make.add_argument("--prefix", default="bookie", help="first part of its id (default: bookie)")
    run = noun.verb(
        "run",
        f"{SERVER}.run",
        "run a bookie, or one for each [[bookie]] table of the file",
        needs_cluster=False,
    )
    add_option_flags_later(run, "bookie")
    run.add_argument(
        "--format-if-empty", metavar="PREFIX", help="create a bookie first if there is none"
    )
    check = noun.verb(
        "check",
        f"{SERVER}.check",
        "read a stopped bookie's complete log and check every checksum",
        needs_cluster=False,
    )
    check.add_argument("data_dir", metavar="DIR", help=DIR_HELP)
    _add_offline_verbs(noun)
    noun.verb("list", "list_all", "list every bookie, up or not")
    info = noun.verb("info", "info", "print a bookie's registration and state")
    info.add_argument("bookie", metavar="ID", help=ID_HELP)
    readonly = noun.verb(
        "readonly",
        "switch_read_only",
        "make a bookie read-only (on) or writable (off); this survives a restart",
    )
    readonly.add_argument("bookie", metavar="ID", help=ID_HELP)
    readonly.add_argument("switch", choices=("on", "off"), help="on: it takes no new entries")
    _add_lifecycle_verbs(noun)
    accept = noun.verb(
        "accept-metadata",
        "accept_metadata",
        "accept metadata that was restored from a backup: the bookie again removes the ledgers "
        "that the metadata does not have",
    )
    accept.add_argument("bookie", metavar="ID", help=ID_HELP)
    _add_replica_verbs(noun)
    return noun.parser


def _add_lifecycle_verbs(noun: Noun) -> None:
    verbs = (
        ("drain", "move everything away from bookies, which then may be removed"),
        ("undrain", "use draining or drained bookies again"),
        (
            "remove",
            "remove drained or lost bookies for ever, if no ledger names them; their ids are never "
            "used again",
        ),
    )
    for name, summary in verbs:
        verb = noun.verb(name, name, summary, is_audited=True)
        verb.add_argument("bookies", metavar="ID", nargs="+", help=ID_HELP)
        verb.add_argument(
            "--dry-run",
            action="store_true",
            help="change nothing; show what would happen, with status 1 if something blocks it",
        )
        verb.add_argument("--reason", default="", help="text that is stored with the state")


def _add_offline_verbs(noun: Noun) -> None:
    segments = noun.verb(
        "segments",
        f"{OFFLINE}.segments",
        "list a stopped bookie's segment files and their contents",
        needs_cluster=False,
    )
    segments.add_argument("data_dir", metavar="DIR", help=DIR_HELP)
    dump = noun.verb(
        "dump",
        f"{OFFLINE}.dump",
        "print the records of one segment file of a stopped bookie",
        needs_cluster=False,
    )
    dump.add_argument(
        "segment", metavar="SEGMENT_FILE", help="DIR/log/00000001.log, or a copy of such a file"
    )
    dump.add_argument("--ledger", metavar="ID", type=ledger_id, help="only this ledger's records")
    dump.add_argument(
        "--from",
        dest="first",
        metavar="OFFSET",
        type=not_negative,
        default=0,
        help="offset to begin at",
    )
    dump.add_argument("--limit", metavar="N", type=positive, help="print at most N records")
    rebuild = noun.verb(
        "rebuild-index",
        f"{OFFLINE}.rebuild",
        "build a stopped bookie's index again from the old one and every segment",
        needs_cluster=False,
    )
    rebuild.add_argument("data_dir", metavar="DIR", help=DIR_HELP)
    rebuild.add_argument(
        "--discard", action="store_true", help="do not keep the old index as data.mdb.old-N"
    )
    rebuild.add_argument(
        "--accept-limbo",
        action="store_true",
        help="continue although fences or deletions may be lost: the bookie is then in limbo",
    )


def _add_replica_verbs(noun: Noun) -> None:
    entry = noun.verb(
        "entry", f"{REPLICA}.entry", "read one bookie's copy of an entry and check it"
    )
    entry.add_argument("bookie", metavar="ID", help=ID_HELP)
    entry.add_argument("ledger", metavar="LEDGER", type=ledger_id, help="the ledger's id")
    entry.add_argument("entry", metavar="ENTRY", type=entry_id, help="the entry's id, from 0")
    payload = entry.add_mutually_exclusive_group()
    payload.add_argument("--raw", action="store_true", help="print only the payload")
    payload.add_argument("--to", metavar="FILE", help="write the payload to a file")
    compare = noun.verb("compare", f"{REPLICA}.compare", "compare two bookies' copies of a ledger")
    compare.add_argument("a", metavar="A", help=ID_HELP)
    compare.add_argument("b", metavar="B", help="the id of another bookie")
    compare.add_argument("ledger", metavar="LEDGER", type=ledger_id, help="the ledger's id")
    for verb in (entry, compare):
        verb.add_argument("--password-file", metavar="FILE", help="file with the ledger's password")
