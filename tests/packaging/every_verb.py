"""What each verb of the command does in this installation, until it would use the network.

Runs as a script, in installations without the tests' own packages. Each verb runs in a child
process, with made-up arguments, and ends when it opens a connection or listens.

Format of the output: one JSON object, from "NOUN VERB" to [status, standard error]. Status REACHED
means that the verb got as far as the network. Arguments: `--without MODULE ...` hides modules.
"""

import argparse
import importlib
import importlib.abc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

REACHED = 200
DEADLINE_S = 60
METADATA = "zk://127.0.0.1:1/nowhere"
NETWORK = ("socket.connect", "socket.bind", "subprocess.Popen")
VALUES = {
    ("topic trim", "--before"): "1",
    ("acl add", "--operation"): "read",
    ("acl add", "--topic"): "name",
    ("acl add", "--allow"): "User:ann",
    ("acl remove", "--topic"): "name",
    ("acl remove", "--allow"): "User:ann",
}
"""Optional arguments that a verb nevertheless needs, or that end it soon."""


class Hidden(importlib.abc.MetaPathFinder):
    """Finder that finds none of some modules."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def find_spec(  # type: ignore[explicit-override]
        self, fullname: str, path: object = None, target: object = None
    ) -> None:
        """Raise ModuleNotFoundError for a hidden module."""
        del path, target
        if fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def main() -> None:
    """Print what each verb did."""
    hidden = sys.argv[2:] if sys.argv[1:2] == ["--without"] else []
    sys.meta_path.insert(0, Hidden(hidden))
    os.chdir(tempfile.mkdtemp())
    Path("file").write_text("text\n")
    found = {" ".join(words): in_child(words, given) for words, given in every_verb()}
    sys.stdout.write(json.dumps(found))


def every_verb() -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of each verb, and arguments for it."""
    from quire.cli.main import NOUNS, parser_of  # noqa: PLC0415 - after modules are hidden

    for noun in NOUNS:
        parser = parser_of(noun)
        verbs = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        if not verbs:
            yield [noun], list(arguments_of(noun, parser))
        for action in verbs:
            for name, verb in action.choices.items():
                yield [noun, name], list(arguments_of(f"{noun} {name}", verb))


def arguments_of(act: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield arguments that the parser of a verb accepts."""
    for action in parser._actions:
        known = VALUES.get((act, action.option_strings[0])) if action.option_strings else None
        if action.dest == "metadata":
            yield from ("--metadata", METADATA)
        elif known is not None:
            yield from (action.option_strings[0], known)
        elif action.required and action.option_strings:
            yield from (action.option_strings[0], value_of(action))
        elif not action.option_strings and action.nargs not in ("?", "*"):
            yield value_of(action)


def value_of(action: argparse.Action) -> str:
    """Return a value that an argument accepts."""
    if action.choices:
        return str(next(iter(action.choices)))
    if action.type is not None:
        return "1"
    return "file" if action.metavar in ("FILE", "DIR") else "name"


def in_child(words: list[str], given: list[str]) -> tuple[int, str]:
    """Run a verb in a child process; return its status and what it wrote to standard error."""
    with tempfile.TemporaryFile("w+") as errors, open(os.devnull, "r+") as nothing:  # noqa: PTH123
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 0)
            os._exit(run([*words, *given]))
        status = waited(child)
        errors.seek(0)
        return status, errors.read()


def run(words: list[str]) -> int:
    """Run the command in this process until it ends or uses the network."""
    sys.addaudithook(lambda event, _: os._exit(REACHED) if event in NETWORK else None)
    try:
        from quire.cli.main import main as command  # noqa: PLC0415 - after modules are hidden

        return command(words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - the child must end here
        traceback.print_exc()
        return 70
    finally:
        sys.stderr.flush()


def waited(child: int) -> int:
    """Return the status of a child; it is killed after DEADLINE_S."""
    for _ in range(DEADLINE_S * 100):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


if __name__ == "__main__":
    main()
