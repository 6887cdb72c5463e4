"""Java processes: servers that end with this process, and a load client with a line protocol.

Leaves the command lines to the peers, and stopping a server without a starter to
`metadata.store.embedded_supervisor`.

Invariants: a server never outlives this process; a load client never outlives its input, which only
this process holds; every wait has a limit.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.peers.maven import JavaPeer
from metadata.store.embedded_ports import HOST
from quire.local.child_process import ChildProcess

SUPERVISOR: Final = "metadata.store.embedded_supervisor"
INHERITED_DESCRIPTOR: Final = "2"
"""Descriptor that the supervisor requires for its command to inherit; the command has this one
anyway."""
LISTEN_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.05
TOOL_TIMEOUT_S: Final = 60.0
ANSWER_TIMEOUT_S: Final = 300.0
LINE_BYTES_MAX: Final = 1024 * 1024


class PeerFailedError(Exception):
    """An available peer failed; its log has the details."""


class JavaServer:
    """One server process, which can be paused."""

    def __init__(self, name: str, command: Sequence[str], log_path: Path) -> None:
        supervisor = importlib.util.find_spec(SUPERVISOR)  # found, not imported
        assert supervisor is not None
        assert supervisor.origin is not None
        supervising = [sys.executable, "-I", "-S", supervisor.origin, INHERITED_DESCRIPTOR]
        self.name = name
        self.pid = 0
        self._process = ChildProcess(name, [*supervising, *command], log_path)

    async def start(self) -> None:
        """Start the server; `wait_listening` waits until it serves."""
        await self._process.start(dict(os.environ))
        self.pid = int(await self._process.first_line(LISTEN_TIMEOUT_S))

    async def wait_listening(self, port: int) -> None:
        """Return once the port accepts connections. Raises PeerFailedError if it never does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LISTEN_TIMEOUT_S
        while loop.time() < deadline and self._process.is_running:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, port)
                writer.close()
                return
            await asyncio.sleep(POLL_S)
        raise PeerFailedError(str(self._process.failure("does not listen")))

    def pause(self) -> None:
        """Pause the server (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    async def kill(self) -> None:
        """Kill the server (SIGKILL), also if it is paused: its data is not needed."""
        if self.pid and self._process.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        await self._process.stop()


async def run_tool(
    command: Sequence[str], log_path: Path, timeout_s: float = TOOL_TIMEOUT_S
) -> None:
    """Run a program that ends by itself. Raises PeerFailedError if its status is not 0."""
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=log, stderr=log
        )
    try:
        status = await asyncio.wait_for(process.wait(), timeout_s)
    except TimeoutError:
        raise PeerFailedError(f"{log_path.stem} took over {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status != 0:
        raise PeerFailedError(f"{log_path.stem} ended with status {status}: {log_path}")


async def start_all(servers: Sequence[JavaServer], ports: Sequence[int]) -> None:
    """Start servers concurrently; return once all listen."""
    await asyncio.gather(*(server.start() for server in servers))
    pairs = zip(servers, ports, strict=True)
    await asyncio.gather(*(server.wait_listening(port) for server, port in pairs))


async def kill_all(servers: Sequence[JavaServer]) -> None:
    """Kill servers concurrently, also those that never started."""
    await asyncio.gather(*(server.kill() for server in servers))


class LoadClient:
    """A compiled load client (java/LoadClient.java describes its commands)."""

    def __init__(
        self, peer: JavaPeer, flags: Sequence[str], main: str, argument: str, log_path: Path
    ) -> None:
        self._command = [peer.java, *flags, "-cp", peer.classpath, main, argument]
        self._log_path = log_path
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C must not reach it; the end of its input ends it
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def ask(self, *words: object) -> dict[str, object]:
        """Send a command and return its result."""
        await self.send(*words)
        return await self.answer()

    async def send(self, *words: object) -> None:
        """Send a command."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        await self._process.stdin.drain()

    async def answer(self) -> dict[str, object]:
        """Return the next result. Raises PeerFailedError if it is an error, or if there is none."""
        assert self._process is not None
        assert self._process.stdout is not None
        while True:
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), ANSWER_TIMEOUT_S)
            except TimeoutError:
                raise PeerFailedError(f"no response within {ANSWER_TIMEOUT_S:.0f} s") from None
            if not line:
                raise PeerFailedError(f"the load client ended: {self._log_path}")
            values = parse_answer(line)
            if values is not None:
                return values


def parse_answer(line: bytes) -> dict[str, object] | None:
    """Return the values of one line of a load client; None for a line that a library printed.

    Raises PeerFailedError if the line reports a failure.
    """
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    if not isinstance(answer, Mapping):
        return None
    values = {str(key): value for key, value in answer.items()}
    if "error" in values:
        raise PeerFailedError(f"the load client failed: {values['error']}")
    if values.pop("done", None) is not True and values.get("started") is not True:
        return None
    return values
