"""Entry point of the `quire` command: finds the noun, runs the verb, returns the exit status.

Leaves each noun's verbs to its module, which is imported only when that noun is given, so that
`quire --help` stays fast.
"""

import argparse
import asyncio
import difflib
import errno
import importlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from quire.cli.output import Output
from quire.errors import CommandError, ExitCode, exit_code


class Command(NamedTuple):
    """What follows `quire` on the command line: a noun, or a command without verbs."""

    module: str
    summary: str
    parser: str = "parser"
    """Function of the module that returns its parser."""


NOUNS: Final = {
    "up": Command(
        "quire.cli.up", "start a local cluster: ZooKeeper, bookies, brokers, as real processes"
    ),
    "demo": Command("quire.cli.demo", "append a file while bookies fail, read it back, compare"),
    "ledger": Command(
        "quire.cli.ledger_verbs",
        "create, list, show, append, read, tail, recover, verify, export, import, delete",
    ),
    "chain": Command(
        "quire.cli.chain", "list, show, create, trim, collect, delete: lists of ledgers"
    ),
    "spark": Command(
        "quire.cli.spark", "scrub, archive, restore, ingest, tail-to-table, run by Spark"
    ),
    "bookie": Command(
        "quire.cli.bookie_verbs",
        "format, run, list, info, readonly, drain, undrain, remove, entry, compare, check, ...",
    ),
    "repair": Command(
        "quire.cli.repair_verbs",
        "status, list, explain, run, throttle, pause, resume, settings: copies made again",
    ),
    "topic": Command(
        "quire.cli.topic_verbs",
        "create, list, show, produce, consume, grow, config, elect, trim, delete",
    ),
    "acl": Command(
        "quire.cli.rights_verbs", "add, list, remove: what clients of brokers may do", "acl_parser"
    ),
    "gateway": Command(
        "quire.cli.servers", "run: do metadata work for clients not trusted", "gateway_parser"
    ),
    "top": Command("quire.cli.top", "what the servers do now, on the terminal"),
    "console": Command("quire.cli.servers", "show a cluster in a browser", "console_parser"),
    "broker": Command(
        "quire.cli.servers", "run: serve topics to clients of Kafka's protocol", "broker_parser"
    ),
    "zookeeper": Command(
        "quire.cli.servers", "run, status: the servers of the metadata", "zookeeper_parser"
    ),
    "cluster": Command("quire.cli.cluster", "init, health, if-lost, version, report"),
    "metadata": Command(
        "quire.cli.metadata_verbs", "dump, restore, compare, accept-restore, check, audit, secure"
    ),
    "user": Command(
        "quire.cli.rights_verbs",
        "add, password, remove, list, show: users of brokers",
        "user_parser",
    ),
    "grant": Command(
        "quire.cli.rights_verbs",
        "add, remove, list: roles of principals on ledgers",
        "grant_parser",
    ),
    "quota": Command(
        "quire.cli.rights_verbs", "set, list, remove: how much clients may use", "quota_parser"
    ),
    "tls": Command("quire.cli.tls", "init: certificates for development"),
    "config": Command("quire.cli.config", "show, check"),
    "completion": Command("quire.cli.completion", "completion for bash, zsh and fish"),
    "bench": Command("quire.cli.bench", "compare, report: ways to replicate while faults strike"),
}
OUTPUT_ENDS: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writes to a pipe that its reader closed, or to a file that cannot grow."""
STOPS: Final = (signal.SIGTERM, signal.SIGHUP)
FOOTER: Final = """\
`quire NOUN --help` shows more. Every verb takes --metadata ADDRESS (or QUIRE_METADATA) and -o json.
Exit status: 0 done; 1 a check found problems; 2 wrong usage; 3 not found; 4 refused;
5 the cluster did not respond; 6 damaged data; 70 a defect of Quire; 130 interrupted.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In an encoding that lacks a character, its number is shown. A stream whose descriptor was
        # exchanged refuses any change.
        with suppress(OSError):
            sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return _command(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except OSError as error:
        return _fail("", error, Output(as_json=False, results=sys.stdout, remarks=sys.stderr))


def _command(words: list[str]) -> int:
    if not __debug__:
        sys.stderr.write(
            "quire: Python runs with -O, which removes assertions: run it without -O\n"
        )
        return ExitCode.USAGE
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(_help())
        return ExitCode.DONE if words else ExitCode.USAGE
    if words[0] == "--version":
        from quire.distribution import build

        sys.stdout.write(f"quire {build()}\n")
        return ExitCode.DONE
    if words[0] not in NOUNS:
        sys.stderr.write(_unknown(words[0]))
        return ExitCode.USAGE
    noun = words[0]
    try:
        arguments = parser_of(noun).parse_args(words[1:])
    except ModuleNotFoundError as error:
        output = Output(as_json=False, results=sys.stdout, remarks=sys.stderr)
        return _fail(noun, error, output)
    return _run(noun, arguments)


def parser_of(noun: str) -> argparse.ArgumentParser:
    """Return the parser of a noun. Raises ModuleNotFoundError."""
    module = importlib.import_module(NOUNS[noun].module)
    parser: argparse.ArgumentParser = getattr(module, NOUNS[noun].parser)()
    return parser


def _run(noun: str, arguments: argparse.Namespace) -> int:
    as_json = arguments.output == "json"
    output = Output(as_json=as_json, results=sys.stdout, remarks=sys.stderr)
    # A command reports through its output; logs of the client would only repeat its errors.
    logging.basicConfig(level=logging.INFO if arguments.verbose else logging.CRITICAL)
    try:
        with _stopped_as_by_an_interrupt():
            result = arguments.handler(arguments, output)
            if asyncio.iscoroutine(result):
                code = asyncio.run(_audited(arguments, output, result))
            else:
                code = result
        if output.lost is not None:
            raise output.lost
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        output.remark("\ninterrupted" if output.remarks_to_person else "interrupted")
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001  every failure of the process becomes a status
        return _fail(noun, error, output)


@contextmanager
def _stopped_as_by_an_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP do what Ctrl-C does, so that a command says what it has done. Signals
    that are handled or ignored already stay as they are.
    """
    taken = []
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        taken = [stop for stop in STOPS if signal.getsignal(stop) is signal.SIG_DFL]
    for signals in taken:
        signal.signal(signals, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for signals in taken:
            signal.signal(signals, signal.SIG_DFL)


async def _audited(
    arguments: argparse.Namespace, output: Output, work: Coroutine[None, None, int]
) -> int:
    """Run a command; record it if its verb says so."""
    needed = getattr(arguments, "audited_with", "")
    if not arguments.is_audited or (needed and not getattr(arguments, needed)):
        return await work
    from quire.cli.audit import recorded

    return await recorded(arguments, output, work)


def _fail(noun: str, error: Exception, output: Output) -> int:
    """Report an error; return the exit status."""
    if isinstance(error, OSError) and error.errno in OUTPUT_ENDS:
        # The interpreter must not flush at its end what cannot be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return ExitCode.OUTPUT_CLOSED
        error = CommandError(
            f"{error.filename or 'the output'} cannot be written: {error.strerror}",
            try_next="make room there, or write the output to another place",
        )
    if isinstance(error, ModuleNotFoundError):
        from quire.missing_packages import missing_package

        error = missing_package(noun, error) or error
    code = exit_code(error)
    if code == ExitCode.DEFECT:
        output.remark(_defect(error).rstrip("\n"))
    output.failure(error, code)
    return code


def _help() -> str:
    width = max(map(len, NOUNS))
    nouns = "".join(f"  {name:<{width}}  {command.summary}\n" for name, command in NOUNS.items())
    title = "Quire keeps ledgers: ordered, durable, replicated, with one writer each."
    return f"usage: quire NOUN [VERB] ...\n\n{title}\n\n{nouns}\n{FOOTER}"


def _unknown(word: str) -> str:
    near = difflib.get_close_matches(word, NOUNS, n=1)
    hint = f"did you mean `quire {near[0]}`?" if near else f"there are: {', '.join(NOUNS)}"
    return f"quire: no command {word!r}: {hint}\n"


def _defect(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))


if __name__ == "__main__":
    sys.exit(main())
