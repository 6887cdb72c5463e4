"""Servers of a local cluster that are forked from a process with all imports, and their repair.

Leaves the fork to `forking.py`. A server with code of another release starts as a user starts it.
"""

import asyncio
import socket
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import IO, Final
from unittest import mock

from typing_extensions import override

from quire.local.child_process import ChildProcess, child_variables
from tests.support.quire.forks.forking import FORKED, fork_quire, pipe

STARTING: Final = ("quire.local.local_server", "quire.local.bookie_group")
"""Modules that start servers."""
PREFIX: Final = ("-m", "quire.cli.main")
"""Words after the interpreter in the command of a server."""
STATUS_BYTES_MAX: Final = 100


@contextmanager
def forked_servers() -> Iterator[None]:
    """Fork the servers of local clusters from now on."""
    with ExitStack() as stack:
        for module in STARTING:
            stack.enter_context(mock.patch(f"{module}.ChildProcess", ForkedServer))
        yield


class ForkedServer(ChildProcess):
    """A server's process."""

    @override
    async def _spawn(self, variables: Mapping[str, str], log: IO[bytes] | None) -> Process:
        own_code = variables.get("PYTHONPATH") != child_variables()["PYTHONPATH"]
        if own_code or self._command[1:3] != PREFIX:
            return await super()._spawn(variables, log)
        loop = asyncio.get_running_loop()
        with ExitStack() as files:
            (from_us, to_it), (from_it, to_us) = pipe(files), pipe(files)
            errors = 2 if log is None else log.fileno()
            streams = (from_us.fileno(), to_us.fileno(), errors)
            asking = fork_quire(self._command[3:], variables, streams)
            from_us.close()
            to_us.close()
            files.pop_all()
        ended = asyncio.Event()
        output = _Output(ended.set)
        await loop.connect_read_pipe(lambda: output, from_it)
        process = _Forked(asking, ended)
        await process.started()
        streams_of = SimpleNamespace(stdin=to_it, stdout=output.reader, stderr=None)
        return Process(process, streams_of, loop)  # type: ignore[arg-type]


class _Output(asyncio.StreamReaderProtocol):
    """Protocol of a server's standard output."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self.reader = asyncio.StreamReader()
        super().__init__(self.reader)
        self._on_end = on_end

    @override
    def eof_received(self) -> bool:
        super().eof_received()
        self._on_end()
        return False  # close it: uvloop keeps it open otherwise, and does not say that it was lost


class _Forked:
    """What `Process` wants of a transport."""

    def __init__(self, asking: socket.socket, output_ended: asyncio.Event) -> None:
        asking.setblocking(False)
        self._asking = asking
        self._output_ended = output_ended
        self._replies = b""
        self._pid = 0
        self._status: int | None = None
        self._end: asyncio.Task[int] | None = None

    async def started(self) -> None:
        """Wait until the process has an id, and watch for its end from then on."""
        self._pid = await self._reply(0)
        FORKED.add(self._pid)
        self._end = asyncio.create_task(self._watch())

    def get_pid(self) -> int:
        return self._pid

    def get_returncode(self) -> int | None:
        return self._status

    async def _wait(self) -> int:
        assert self._end is not None, "it was started"
        return await asyncio.shield(self._end)

    async def _watch(self) -> int:
        status = await self._reply(1)
        await self._output_ended.wait()
        self._asking.close()
        self._status = status
        return status

    async def _reply(self, number: int) -> int:
        loop = asyncio.get_running_loop()
        while len(lines := self._replies.split(b"\n")) < number + 2:
            received = await loop.sock_recv(self._asking, STATUS_BYTES_MAX)
            assert received, "the program that forks has ended"
            self._replies += received
        return int(lines[number])
