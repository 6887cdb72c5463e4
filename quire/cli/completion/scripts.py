"""Script with which a shell completes the words of the `quire` command.

Leaves the form of scripts to shtab, and the words to the parsers of the nouns. The script is
static: a shell that completes a word starts no Python.

Invariant: it can be made without any extra. Options of servers whose extra is not installed are
left out: their verbs do not run here either.
"""

import argparse
import importlib

import shtab

from quire.cli.command_line import VerbParser
from quire.cli.main import NOUNS
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.missing_packages import EXTRAS


def print_script(arguments: argparse.Namespace, output: Output) -> int:
    """Print the script of a shell."""
    script = shtab.complete(whole_parser(), shell=arguments.shell)
    if output.as_json:
        output.record({"shell": arguments.shell, "script": script})
    else:
        output.line(script)
    return ExitCode.DONE


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of all commands, with what completes each argument."""
    whole = argparse.ArgumentParser(prog="quire")
    whole.add_argument("--version", action="store_true", help="print the version")
    nouns = whole.add_subparsers(parser_class=_parser_of)  # type: ignore[call-overload]
    for noun, (_, summary) in NOUNS.items():
        _complete(nouns.add_parser(noun, help=summary))
    return whole


def _parser_of(*, prog: str, **_: object) -> argparse.ArgumentParser:
    module, _summary = NOUNS[prog.rpartition(" ")[2]]
    parser: argparse.ArgumentParser = importlib.import_module(module).parser()
    return parser


def _complete(parser: argparse.ArgumentParser) -> None:
    """Add what the parser lacks, and names of files; the same for its verbs."""
    if isinstance(parser, VerbParser):
        try:
            parser.complete()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in EXTRAS:
                raise
    kinds = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for verb in action.choices.values():
                _complete(verb)
        elif action.metavar in kinds:
            action.complete = kinds[str(action.metavar)]  # type: ignore[attr-defined]
