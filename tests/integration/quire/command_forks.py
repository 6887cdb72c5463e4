"""Program that has imported all of Quire, and forks one process for each command that a test runs.

Nearly all processor time of a short command is that of its imports, and tests run hundreds of
commands. Such a process has its own standard streams, environment and exit status; only its
imports happened earlier. `command.py` starts this program, and asks it.

Format: argument: the descriptor of a socket on which a request is one byte with four descriptors: a
socket for the command, and its standard streams. The command's socket carries one JSON line,
{"words", "variables", "directory"}; the replies are two lines: the process id, then the status as
`subprocess` has it. End of file on the first socket ends this program.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import quire.cli.main

DESCRIPTORS = 4


def main() -> int:
    """Serve until the tests are gone; return the status of a forked command."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    gc.collect()
    gc.freeze()  # a collection would copy the pages that all commands share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the process of `_watch`
    while True:
        marker, descriptors, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS)
        if not marker:
            return 0
        if os.fork() == 0:
            requests.close()
            return _watch(*descriptors)
        for each in descriptors:
            os.close(each)


def _watch(asked: int, *streams: int) -> int:
    """Fork the command, and report its end; return in the command's process alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=asked) as asking:
        with asking.makefile("rb") as lines:
            request = json.loads(lines.readline())
        child = os.fork()
        if child:
            for each in streams:
                os.close(each)
            _report(asking, child)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["directory"])
    sys.argv = [str(quire.cli.main.__file__), *request["words"]]
    return quire.cli.main.main()


def _report(asking: socket.socket, child: int) -> NoReturn:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a test gave up
        asking.sendall(b"%d\n" % child)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        asking.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _import_all() -> None:
    """Import every command's modules; those of extras that are not installed stay missing."""
    package = Path(str(quire.cli.main.__file__)).parent
    for module in pkgutil.walk_packages([str(package)], "quire.cli."):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module.name)


if __name__ == "__main__":
    sys.exit(main())
