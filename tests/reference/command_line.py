"""Page of every command, with its arguments, from the parsers themselves."""

import argparse
from collections.abc import Iterator
from typing import Final

from quire.cli.command_line import VerbParser
from quire.cli.main import NOUNS, parser_of
from quire.errors import ExitCode
from tests.reference.markdown import code, page, prose, table

SHARED: Final = ("help", "output", "verbose", "metadata")
"""Arguments that most verbs take; the page shows them once."""
INTRODUCTION: Final = """\
Every verb takes `-o json` (also `--json`) for JSON instead of a table, `-v` to log to the
standard error, and `-h` for help. Verbs that talk to a cluster take `--metadata ADDRESS`, or
read `QUIRE_METADATA`. Results go to the standard output, everything else to the standard error."""


def command_line_page() -> str:
    """Return the page."""
    sections = [_statuses()]
    for noun in NOUNS:
        parser = parser_of(noun)
        if isinstance(parser, VerbParser):
            parser.complete()
        sections += [f"## quire {noun}", prose(parser.description or "")]
        verbs = dict(verbs_of(parser))
        sections += _arguments(parser) if not verbs else []
        for name, verb in verbs.items():
            sections += [f"### quire {noun} {name}", prose(verb.description or "")]
            sections += _arguments(verb)
    return page("Command line", INTRODUCTION, sections)


def _statuses() -> str:
    rows = ([str(int(exit_code)), code(exit_code.name)] for exit_code in ExitCode)
    explained = "What each means is in [operating.md](../operating.md#exit-status)."
    return f"## Exit status\n\n{explained}\n\n" + table(["status", "name"], rows)


def verbs_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the verbs of a noun, with all their arguments."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                verb.complete()
                yield name, verb


def arguments_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a verb, without the shared ones."""
    return [action for action in parser._actions if action.dest not in SHARED]


def _arguments(parser: argparse.ArgumentParser) -> list[str]:
    rows = [
        [
            _name(argument),
            "yes" if _is_required(argument) else "",
            _default(argument),
            _help(argument),
        ]
        for argument in arguments_of(parser)
    ]
    return [table(["argument", "required", "default", "meaning"], rows)] if rows else []


def _is_required(action: argparse.Action) -> bool:
    """Return whether an argument must be given. Before Python 3.14, argparse also says so of a list
    that may be empty.
    """
    return action.required and action.nargs != argparse.ZERO_OR_MORE


def _name(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    if not action.option_strings:
        return code(metavar)
    if action.nargs == 0:
        return code(", ".join(action.option_strings))
    if action.choices is not None:
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    return code(f"{', '.join(action.option_strings)} {metavar}")


def _default(action: argparse.Action) -> str:
    is_switch = action.nargs == 0 and not action.default
    if action.default in (None, [], argparse.SUPPRESS) or is_switch:
        return ""
    return code(str(action.default))


def _help(action: argparse.Action) -> str:
    return prose((action.help or "").replace("%%", "%"))
