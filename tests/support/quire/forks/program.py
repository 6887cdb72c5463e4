"""Program that has imported all of Quire, and forks the processes of commands and servers.

Imports use two thirds of the processor time of a server's start, and nearly all that a short
command uses; tests start thousands of both. A forked process has its own standard streams,
environment, session and exit status; only its imports happened earlier. `forking.py` starts this
program, and asks it.

Format: argument: the descriptor of a socket on which a request is one byte with descriptors: a
socket for the process, its standard streams, and the other end of the socket for requests, if the
process may have its own servers forked. The socket for the process carries one JSON line, {"words",
"variables", "directory"}; the replies are two lines: the process id, then the status as
`subprocess` has it. End of file on the first socket ends this program, but no forked process.
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
from tests.support.quire.forks.forked_server import forked_servers
from tests.support.quire.forks.forking import adopt

STREAMS = 3
DESCRIPTORS_MAX = 5


def main() -> int:
    """Fork what is asked for until the tests are gone; in a forked process, run its command."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    gc.collect()
    gc.freeze()  # a collection would copy the pages that all processes share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the processes of `_watch` need no wait
    while True:
        marker, descriptors, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS_MAX)
        if not marker:
            return 0
        if os.fork() == 0:
            requests.close()
            return _watch(*descriptors)
        for each in descriptors:
            os.close(each)


def _watch(asked: int, *descriptors: int) -> int:
    """Fork the wanted process and report its end; return the command's status, there alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=asked) as asking:
        with asking.makefile("rb") as lines:
            request = json.loads(lines.readline())
        child = os.fork()
        if child:
            for each in descriptors:
                os.close(each)
            _report(asking, child)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    for number, each in enumerate(descriptors[:STREAMS]):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["directory"])
    sys.argv = [str(quire.cli.main.__file__), *request["words"]]
    with contextlib.ExitStack() as stack:
        for each in descriptors[STREAMS:]:
            adopt(socket.socket(fileno=each))
            stack.enter_context(forked_servers())
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
