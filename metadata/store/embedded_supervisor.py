"""Program that runs one command, and kills it when the process that started the program is gone.

Leaves everything else to `embedded.py`, which starts this file as a program. It imports nothing of
Quire.

Format: arguments: the number of an open descriptor for the command to inherit, then the command.
Standard input is a pipe whose other end only the starting process holds, so end of file means that
this process is gone. The first line of standard output is the command's process id. The exit status
is the command's.

Invariants: the command never outlives the starting process; on Linux, not even if this program is
killed.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Request from Linux that this process is killed when the thread that forked it ends. Other
    systems have no such call.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Run the command until it ends or standard input reaches end of file."""
    descriptor = int(sys.argv[1])
    child = subprocess.Popen(
        sys.argv[2:],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        pass_fds=(descriptor,),
        preexec_fn=die_with_parent,  # noqa: PLW1509  # this process has one thread
    )
    os.close(descriptor)

    def child_ended(_signal: int, _frame: FrameType | None) -> None:
        status = child.poll()
        if status is not None:
            os._exit(status if status >= 0 else 128 - status)

    signal.signal(signal.SIGCHLD, child_ended)
    child_ended(0, None)  # it may have ended before the handler was installed
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{child.pid}\n".encode())
    while os.read(0, 4096):
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child.kill()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
