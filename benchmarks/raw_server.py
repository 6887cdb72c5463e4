"""Receives bytes on one connection, writes and syncs them, answers how many are durable.

This is one of the three processes of `benchmarks.raw`: the least that a bookie has to do. There is
no framing, no check, no index. Leaves what is sent to `benchmarks.raw_client`.

Format: the port, as one line on standard output; then on the connection, for each group written and
synced, the bytes durable so far as u64, little-endian. The file is preallocated: appending to one
that grows was up to ten times slower to sync.

Two forms, each the leaner for one question. "in_turn": one thread receives, writes, syncs, answers;
while it syncs, the kernel's socket buffer gathers the next group (least latency). "overlapped": a
second thread writes and syncs while the first receives the next group (most bytes per second).
"""

import os
import socket
import sys
import threading
from collections import deque
from typing import Final

RECEIVE_BYTES: Final = 4 * 1024 * 1024
GROUP_BUFFERS_MAX: Final = 512
QUEUED_BYTES_MAX: Final = 64 * 1024 * 1024
SWITCH_INTERVAL_S: Final = 0.000_05

sync = os.fdatasync if hasattr(os, "fdatasync") else os.fsync


def main(form: str, path: str, preallocate_bytes: int) -> None:
    """Serve one connection until it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, max(1, preallocate_bytes))
    os.fsync(descriptor)
    connection.sendall(bytes(8))  # ready
    if form == "in_turn":
        _serve_in_turn(connection, descriptor)
    else:
        _Overlapped(connection, descriptor).serve()
    os.close(descriptor)


def _serve_in_turn(connection: socket.socket, descriptor: int) -> None:
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    durable = 0
    while size := connection.recv_into(buffer):
        _write_all(descriptor, [buffer[:size]], durable)
        sync(descriptor)
        durable += size
        connection.sendall(durable.to_bytes(8, "little"))


class _Overlapped:
    def __init__(self, connection: socket.socket, descriptor: int) -> None:
        self._connection = connection
        self._descriptor = descriptor
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._changed = threading.Condition()

    def serve(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        writer = threading.Thread(target=self._write)
        writer.start()
        received = True
        while received:
            data = self._connection.recv(RECEIVE_BYTES)
            received = bool(data)
            with self._changed:
                self._queue.append(data)
                self._queued_bytes += len(data)
                self._changed.notify()
                while self._queued_bytes > QUEUED_BYTES_MAX:
                    self._changed.wait()
        writer.join()

    def _write(self) -> None:
        durable, is_ended = 0, False
        while not is_ended:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                count = min(len(self._queue), GROUP_BUFFERS_MAX)
                group = [self._queue.popleft() for _ in range(count)]
                size = sum(map(len, group))
                self._queued_bytes -= size
                self._changed.notify()
            is_ended = not group[-1]
            if size:
                _write_all(self._descriptor, group, durable)
                sync(self._descriptor)
                durable += size
                self._connection.sendall(durable.to_bytes(8, "little"))


def _write_all(descriptor: int, buffers: list[bytes] | list[memoryview], offset: int) -> None:
    written = os.pwritev(descriptor, buffers, offset)
    if written == sum(map(len, buffers)):
        return
    rest = memoryview(b"".join(buffers))[written:]
    while rest:
        offset += written
        written = os.pwrite(descriptor, rest, offset)
        rest = rest[written:]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
