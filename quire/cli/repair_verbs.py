"""Declaration of the verbs of `quire repair` and their arguments."""

import argparse

from quire.cli.command_line import Noun, byte_rate, duration_s, ledger_id, positive
from quire.cli.servers import add_option_flags_later, runs

PAUSE_S_DEFAULT = 3600


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire repair`."""
    noun = Noun(
        "repair",
        "Repair: copies that are made again after bookies are lost or drained.",
        "quire.cli.repair",
    )
    status = noun.verb("status", "status", "show what is left to repair, and how long")
    status.add_argument(
        "--watch", action="store_true", help="show it again and again, until Ctrl-C"
    )
    status.add_argument(
        "--interval", type=positive, default=2, metavar="S", help="with --watch (default: 2 s)"
    )
    _add_job_verbs(noun)
    _add_process_verbs(noun)
    _add_request_verbs(noun)
    _add_settings_verbs(noun)
    return noun.parser


def _add_job_verbs(noun: Noun) -> None:
    listing = noun.verb("list", "list_jobs", "list the published jobs, in their order")
    state = listing.add_mutually_exclusive_group()
    state.add_argument("--blocked", action="store_true", help="only jobs that are blocked")
    state.add_argument("--lost", action="store_true", help="only ledgers with lost entries")
    listing.add_argument(
        "--class",
        dest="urgency",
        type=int,
        choices=range(10),
        metavar="N",
        help="only jobs of this class: 0 is repaired first",
    )
    explain = noun.verb(
        "explain",
        "explain",
        "show what each fragment of a ledger lacks, and why it is not repaired yet",
    )
    explain.add_argument("ledger", metavar="LEDGER", type=ledger_id, help="the ledger's id")


def _add_process_verbs(noun: Noun) -> None:
    for name, main, summary in (
        ("run-auditor", "run_auditor", "be a candidate for the auditor"),
        ("run-worker", "run_worker", "repair ledgers, also without a bookie"),
    ):
        handler = runs("repair", main)
        verb = noun.verb(name, handler, summary, needs_cluster=False)
        add_option_flags_later(verb, "repair")
        verb.add_argument(
            "--session-timeout",
            dest="session_timeout_s",
            type=duration_s,
            metavar="TIME",
            help="the same as --session-timeout-s, such as 30s or 2m",
        )


def _add_request_verbs(noun: Noun) -> None:
    scrub = noun.verb(
        "scrub",
        "scrub",
        "show the scrubs of bookies, or begin some at once",
        is_audited=True,
        audited_with="now",
    )
    scrub.add_argument("--now", action="store_true", help="have the bookies checked at once")
    scrub.add_argument("bookies", nargs="*", metavar="BOOKIE", help="ids of bookies (default: all)")
    run = noun.verb("run", "request", "have ledgers checked and repaired first", is_audited=True)
    run.add_argument("ledgers", nargs="+", metavar="LEDGER", type=ledger_id, help="ids of ledgers")


def _add_settings_verbs(noun: Noun) -> None:
    throttle = noun.verb(
        "throttle",
        "throttle",
        "limit the copying of the complete cluster, at once",
        is_audited=True,
    )
    throttle.add_argument(
        "rate", type=byte_rate, metavar="RATE", help="such as 50MB/s, or unlimited"
    )
    throttle.add_argument(
        "--per-bookie", type=byte_rate, metavar="RATE", help="also limit what one bookie receives"
    )
    throttle.add_argument(
        "--per-source",
        type=byte_rate,
        metavar="RATE",
        help="also limit what is read from one bookie",
    )
    pause = noun.verb("pause", "pause", "begin no repair for some time", is_audited=True)
    pause.add_argument(
        "--for",
        dest="pause_s",
        type=duration_s,
        default=PAUSE_S_DEFAULT,
        metavar="TIME",
        help="such as 30m or 2h; copying goes on by itself afterwards (default: 1h)",
    )
    noun.verb("resume", "resume", "end a pause", is_audited=True)
    settings = noun.verb(
        "settings",
        "settings",
        "show all settings, or change some",
        is_audited=True,
        audited_with="changes",
    )
    settings.add_argument(
        "changes", nargs="*", metavar="NAME=VALUE", help="such as lost_after_s=1800"
    )
