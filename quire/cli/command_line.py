"""Parsers of `quire NOUN VERB`, and the options that verbs share."""

import argparse
import importlib
import os
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Final

from quire.addresses import split_address
from quire.cli.output import Output
from quire.errors import NeedsConsentError, UsageError
from quire.operate.fields import DAY_S, HOUR_S, MINUTE_S
from quire.options import METADATA_VARIABLE
from quire.server.overriding import override

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)")
_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SECONDS: Final = {"": 1, "s": 1, "m": MINUTE_S, "min": MINUTE_S, "h": HOUR_S, "d": DAY_S}
UNLIMITED: Final = "unlimited"

Handler = Callable[[argparse.Namespace, Output], int | Coroutine[None, None, int]]


class VerbParser(argparse.ArgumentParser):
    """Parser of a verb. Arguments whose description needs many imports, or an extra, are added when
    the verb is parsed or described: the other verbs of its noun do without them.
    """

    _add_rest: "Callable[[argparse.ArgumentParser], None] | None" = None

    def add_later(self, add: Callable[[argparse.ArgumentParser], None]) -> None:
        """Set what adds the remaining arguments. It may raise ModuleNotFoundError."""
        assert self._add_rest is None, "one function adds all of them"
        self._add_rest = add

    def complete(self) -> None:
        """Add the remaining arguments; further calls do nothing."""
        add, self._add_rest = self._add_rest, None
        if add is not None:
            add(self)

    @override
    def format_help(self) -> str:
        """Return the help of all arguments."""
        self.complete()
        return super().format_help()

    if not TYPE_CHECKING:  # it has three signatures there

        @override
        def parse_known_args(
            self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
        ) -> tuple[argparse.Namespace, list[str]]:
            """Parse arguments, with all that the verb takes."""
            self.complete()
            return super().parse_known_args(args, namespace)


class Noun:
    """Parser of a noun, to which verbs are added."""

    def __init__(self, name: str, summary: str, module: str = "") -> None:
        """Create the noun. `module` has the handlers that are given by their names alone."""
        self._name = name
        self._module = module
        self.parser = argparse.ArgumentParser(prog=f"quire {name}", description=summary)
        self._verbs = self.parser.add_subparsers(
            metavar="VERB", required=True, parser_class=VerbParser
        )

    def verb(
        self,
        name: str,
        handler: Handler | str,
        summary: str,
        *,
        needs_cluster: bool = True,
        is_audited: bool = False,
        audited_with: str = "",
    ) -> VerbParser:
        """Add a verb; return its parser, for its own arguments. A handler may be given by
        name: a function of the noun's module, or `module.function`. It is imported when it runs.

        `is_audited`: it changes the metadata of the cluster itself, and its results are recorded in
        the audit trail; if `audited_with` is the name of an argument, only where that is given,
        because the verb only shows something without it.
        """
        parser = self._verbs.add_parser(name, help=summary, description=summary)
        add_shared_options(parser, needs_cluster=needs_cluster)
        if isinstance(handler, str):
            module, _, function = handler.rpartition(".")
            handler = _later(module or self._module, function)
        act = f"{self._name} {name}"
        parser.set_defaults(
            handler=handler, act=act, is_audited=is_audited, audited_with=audited_with
        )
        return parser


def _later(module: str, function: str) -> Handler:
    """Return a handler that imports its module when it is called."""

    def handle(arguments: argparse.Namespace, output: Output) -> int | Coroutine[None, None, int]:
        handler: Handler = getattr(importlib.import_module(module), function)
        return handler(arguments, output)

    return handle


def lone_command(
    name: str, handler: Handler, summary: str, *, needs_cluster: bool = False
) -> VerbParser:
    """Return the parser of a command without verbs."""
    parser = VerbParser(prog=f"quire {name}", description=summary)
    add_shared_options(parser, needs_cluster=needs_cluster)
    parser.set_defaults(handler=handler, act=name, is_audited=False)
    return parser


def add_shared_options(parser: argparse.ArgumentParser, *, needs_cluster: bool) -> None:
    """Add `-o` and `-v`, and `--metadata` to commands that connect to a cluster."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="format of results (default: table)",
    )
    parser.add_argument(
        "--json", dest="output", action="store_const", const="json", help="the same as -o json"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log to the standard error")
    if needs_cluster:
        parser.add_argument(
            "--metadata",
            metavar="ADDRESS",
            help=f"zk://host:port,.../root or gateway://host:port,... "
            f"(default: ${METADATA_VARIABLE})",
        )


def add_consent_option(parser: argparse.ArgumentParser) -> None:
    """Add `--yes` to a destructive verb."""
    parser.add_argument(
        "--yes", action="store_true", help="do it, instead of only showing the plan"
    )


def require_consent(arguments: argparse.Namespace, plan: str) -> None:
    """Raise NeedsConsentError with the plan if the verb was called without `--yes`."""
    if not arguments.yes:
        raise NeedsConsentError(f"this would {plan}; nothing was changed", try_next="add --yes")


def chosen(text: str | None, known: list[str], what: str, try_next: str = "") -> tuple[str, ...]:
    """Return the names in a list separated by commas; all for None. Raises UsageError."""
    names = text.split(",") if text else known
    for name in names:
        if name not in known:
            there = f"there is no {what} {name!r}; there are: {', '.join(known)}"
            raise UsageError(there, try_next=try_next)
    return tuple(dict.fromkeys(names))


def metadata_address(arguments: argparse.Namespace) -> str:
    """Return the cluster's address, from the option or the environment. Raises UsageError."""
    address = arguments.metadata or os.environ.get(METADATA_VARIABLE)
    if not address:
        raise UsageError(
            f"no cluster is given: neither --metadata nor {METADATA_VARIABLE} is set",
            try_next="quire up   (starts a local cluster and prints its address)",
        )
    return str(address)


def host_and_port(text: str, *, try_next: str) -> tuple[str, int]:
    """Return a host, of an IPv6 address without brackets, and a port. Raises UsageError."""
    try:
        return split_address(text)
    except ValueError as error:
        raise UsageError(str(error), try_next=try_next) from None


def positive(text: str) -> int:
    """Read a number of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too small: use at least 1")
    return value


def not_negative(text: str) -> int:
    """Read a number of at least 0, for argparse."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative: use at least 0")
    return value


def entry_id(text: str) -> int:
    """Read an entry id, for argparse."""
    from metadata.ids import ENTRY_ID_MAX

    value = not_negative(text)
    if value > ENTRY_ID_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an entry id: use a number from 0 to 2^63 - 2"
        )
    return value


def ledger_id(text: str) -> int:
    """Read a ledger id, for argparse."""
    from metadata.ids import is_ledger_id

    if not (text.isdecimal() and is_ledger_id(int(text))):
        raise argparse.ArgumentTypeError(f"{text!r} is not a ledger id: use a number below 2^63")
    return int(text)


def byte_rate(text: str) -> int:
    """Read bytes per second: `50MB/s`, `1.5MiB/s`, `4000`, or `unlimited`, which is 0."""
    if text == UNLIMITED:
        return 0
    rate = _quantity(text.removesuffix("/s"), _BYTES)
    if rate is None or rate < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate: use a number with B, kB, MB, GB, KiB, MiB or GiB, such as "
            f"50MB/s, or {UNLIMITED}"
        )
    return rate


def duration_s(text: str) -> int:
    """Read a duration of at least 1 s: `90`, `90s`, `30m`, `2h`, `1d`."""
    seconds = _quantity(text, _SECONDS)
    if seconds is None or seconds < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration: use a number with s, m, h or d, such as 30m"
        )
    return seconds


def _quantity(text: str, units: dict[str, int]) -> int | None:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    number, unit = match.groups()
    factor = units.get(unit.lower())
    return None if factor is None else round(float(number) * factor)
