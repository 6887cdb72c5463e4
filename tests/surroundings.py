"""What a test process inherits from its starter, replaced by the same for all.

Tests of signals, file modes, times and texts depend on it, and so do the processes that they start.
Leaves what the product does in other surroundings to `tests/integration/quire/test_surroundings`.
"""

import os
import resource
import signal
import socket
import sys
import time
from typing import Any, Final

LEFT_OUT: Final = (
    "CLICOLOR",
    "COLUMNS",
    "FORCE_COLOR",
    "GIT_",
    "HADOOP_",
    "INVOCATION_ID",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "JOURNAL_STREAM",
    "KAFKA_",
    "LANG",
    "LC_",
    "LINES",
    "LISTEN_",
    "MANPAGER",
    "NOTIFY_SOCKET",
    "NO_COLOR",
    "OTEL_",
    "PAGER",
    "PYSPARK_",
    "PYTHON",
    "QUIRE_",
    "SPARK_",
    "TERM",
    "TZ",
    "WATCHDOG_",
    "ZOO",
    "_JAVA_OPTIONS",
)
"""Beginnings of the names of variables that change what a program does or prints."""
KEPT: Final = ("PYTHONPATH",)
SET: Final = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
NO_PROXY: Final = "localhost,127.0.0.1,::1"
"""Servers of tests are on this machine; what tests download may need a proxy."""
UMASK: Final = 0o022
IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE))


def make_plain() -> None:
    """Set environment, signals, umask and limits of this process, for it and its children."""
    for name in [each for each in os.environ if each.startswith(LEFT_OUT) and each not in KEPT]:
        del os.environ[name]
    os.environ.update(SET)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = NO_PROXY
    time.tzset()
    os.umask(UMASK)
    _listen_to_signals()
    socket.getaddrinfo = _addresses
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.dont_write_bytecode = False  # tests start thousands of processes: each would compile Quire


_GIVEN_ADDRESSES: Final = socket.getaddrinfo


def _addresses(host: Any, port: Any, family: int = 0, *options: Any, **named: Any) -> Any:
    """Return the addresses of a host; `localhost` has no address of IPv6.

    Where a machine gives it one, but has no IPv6, aiohttp leaves a socket behind on Python 3.14.
    """
    if host in ("localhost", b"localhost") and family == socket.AF_UNSPEC:
        family = socket.AF_INET
    return _GIVEN_ADDRESSES(host, port, family, *options, **named)


def _listen_to_signals() -> None:
    """Undo what `nohup`, and a shell for commands in the background, leave ignored or blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - set(IGNORED_BY_PYTHON):
        if signal.getsignal(number) == signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
