"""`quire completion`: the script with which a shell completes the words of the `quire` command.

The script is static: a shell that completes a word starts no Python.

Invariant: it can be made without any extra. Options of servers whose extra is not installed are
left out: their verbs do not run here either.
"""

import argparse
from typing import Final

import shtab

from quire.cli.command_line import VerbParser, lone_command
from quire.cli.main import NOUNS, parser_of
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.missing_packages import EXTRAS

SHELLS: Final = ("bash", "zsh", "fish")


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire completion`."""
    text = (
        "Print a script with which a shell completes nouns, verbs, options and file names. For "
        "bash: `quire completion bash > ~/.local/share/bash-completion/completions/quire`. For "
        "zsh: a file `_quire` in a directory of $fpath. For fish: "
        "`quire completion fish > ~/.config/fish/completions/quire.fish`."
    )
    command = lone_command("completion", print_script, text)
    command.add_argument("shell", choices=SHELLS, help="the shell")
    return command


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
    for noun, command in NOUNS.items():
        _complete(nouns.add_parser(noun, help=command.summary))
    return whole


def _parser_of(*, prog: str, **_: object) -> argparse.ArgumentParser:
    return parser_of(prog.rpartition(" ")[2])


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
