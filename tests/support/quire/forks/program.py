"""Program that has imported all of Quire, and forks the processes of commands and servers.

Imports, and the codecs that a broker compiles, use most of the processor time of a server's start,
and nearly all that a short command uses; tests start thousands of both. A forked process has its
own standard streams, environment, session and exit status; only its imports happened earlier.
`forking.py` starts this program, and asks it.

Format: argument: the descriptor of a socket on which a request is one byte with five descriptors: a
socket for the process, its three standard streams, and the other end of the socket for requests,
for servers that the process starts. The socket for the process carries one JSON line, {"words",
"variables", "directory"}; the replies are two lines: the process id, then the status as
`subprocess` has it. End of file on the first socket ends this program, but no forked process.
"""

import atexit
import contextlib
import gc
import importlib
import json
import logging
import os
import pkgutil
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import quire.cli.main
from broker_layer.kafka.messages import warm_up
from tests.support.quire.forks.forked_server import forked_servers
from tests.support.quire.forks.forking import adopt

DESCRIPTORS = 5


def main() -> int:
    """Fork what is asked for until the tests are gone; in a forked process, run its command."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    deque(warm_up(), maxlen=0)  # a broker compiles every codec before it serves
    gc.collect()
    gc.freeze()  # a collection would copy the pages that all processes share
    ended, ending = socket.socketpair()
    ending.setblocking(False)
    signal.set_wakeup_fd(ending.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    asking: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([requests, ended], [], [])
        if ended in ready:
            ended.recv(4096)
            _report_ended(asking)
        if requests in ready:
            marker, descriptors, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS)
            if not marker:
                return 0
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for own in (requests, ended, ending, *asking.values()):
                    own.close()
                return _run(descriptors)
            asking[pid] = socket.socket(fileno=descriptors[0])
            _reply(asking[pid], pid)
            for descriptor in descriptors[1:]:
                os.close(descriptor)


def _report_ended(asking: dict[int, socket.socket]) -> None:
    while asking:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with asking.pop(pid) as whose:
            _reply(whose, os.waitstatus_to_exitcode(status))


def _reply(to: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a test gave up
        to.sendall(b"%d\n" % number)


def _run(descriptors: Sequence[int]) -> int:
    """Run a command in this process, as its request says; return its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    os.setsid()
    asked, *streams, forks = descriptors
    with socket.socket(fileno=asked) as asking, asking.makefile("rb") as lines:
        request = json.loads(lines.readline())
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["directory"])
    sys.argv = [str(quire.cli.main.__file__), *request["words"]]
    adopt(socket.socket(fileno=forks))
    with forked_servers():
        try:
            status = quire.cli.main.main()
        except SystemExit as ended:
            if not isinstance(ended.code, int):
                raise
            status = ended.code
    atexit.register(_end, status)
    return status


def _end(status: int) -> None:
    """End after the threads, without freeing all objects: that copies the pages of all modules, and
    costs more than the rest of a command.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _import_all() -> None:
    """Import every command's modules; those of extras that are not installed stay missing."""
    package = Path(str(quire.cli.main.__file__)).parent
    for module in pkgutil.walk_packages([str(package)], "quire.cli."):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module.name)


if __name__ == "__main__":
    sys.exit(main())
