"""Server of the baseline: receives bytes on one connection, writes and syncs them, returns the
number of durable bytes.

This is one of the three processes of `benchmarks.ledgers.raw`: the minimum work of a bookie,
without framing, checks and index. Leaves the sent bytes to `benchmarks.ledgers.raw_client`.

Format: the port, as one line on standard output; then on the connection, for each group written and
synced, the bytes durable so far as u64, little-endian. The file is preallocated: a growing file was
up to ten times slower to sync.

There are two forms. "in_turn": one thread receives, writes, syncs and responds; while it syncs, the
kernel's socket buffer collects the next group (least latency). "overlapped": a second thread writes
and syncs while the first receives the next group (most bytes per second).
"""

import os
import queue
import socket
import sys
import threading
from typing import Final

RECEIVE_BYTES: Final = 4 * 1024 * 1024
BUFFER_BYTES: Final = 1024 * 1024
BUFFER_COUNT: Final = 32
SWITCH_INTERVAL_S: Final = 0.000_05
CACHE_DROP_BYTES: Final = 4 * 1024 * 1024
"""Synced bytes after which the file's pages are dropped from the page cache. As in a bookie, later
groups are then written to reused, warm memory (decision 0007)."""

drops = hasattr(os, "posix_fadvise")
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
        _serve_overlapped(connection, descriptor)
    os.close(descriptor)


def _serve_in_turn(connection: socket.socket, descriptor: int) -> None:
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    durable = 0
    while size := connection.recv_into(buffer):
        _write_all(descriptor, [buffer[:size]], durable)
        sync(descriptor)
        durable += size
        connection.sendall(durable.to_bytes(8, "little"))


def _serve_overlapped(connection: socket.socket, descriptor: int) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Buffers are reused: new memory for each group costs twice the processor time.
    free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
    for _ in range(BUFFER_COUNT):
        free.put(memoryview(bytearray(BUFFER_BYTES)))
    received: queue.SimpleQueue[tuple[memoryview, int]] = queue.SimpleQueue()
    arguments = (connection, descriptor, received, free)
    writer = threading.Thread(target=_write_groups, args=arguments)
    writer.start()
    size = 1
    while size:
        buffer = free.get()
        size = connection.recv_into(buffer)
        received.put((buffer, size))
    writer.join()


def _write_groups(
    connection: socket.socket,
    descriptor: int,
    received: "queue.SimpleQueue[tuple[memoryview, int]]",
    free: "queue.SimpleQueue[memoryview]",
) -> None:
    durable, dropped, size = 0, 0, 1
    while size:
        group = [received.get()]
        while not received.empty():
            group.append(received.get())
        size = group[-1][1]
        total = sum(size for _, size in group)
        if total:
            _write_all(descriptor, [buffer[:size] for buffer, size in group], durable)
            sync(descriptor)
            durable += total
            connection.sendall(durable.to_bytes(8, "little"))
            if drops and durable - dropped >= CACHE_DROP_BYTES:
                os.posix_fadvise(descriptor, dropped, durable - dropped, os.POSIX_FADV_DONTNEED)
                dropped = durable
        for buffer, _ in group:
            free.put(buffer)


def _write_all(descriptor: int, buffers: list[memoryview], offset: int) -> None:
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
