"""Request that reads several nodes, as kazoo's connection sends it. Pure.

Leaves which reads go together to `grouped_reads`.

Format: ZooKeeper's `multiRead`, which kazoo does not have. A request is a header and a `getData`
for each node, then an end header; its answer a header and a result for each, then an end header. A
header is type int32, is-end bool, error int32. A result is buffer and statistics, or, after a
header of the type -1, an error int32.

Servers since ZooKeeper 3.6 have it.

Source: ZooKeeper 3.9, `MultiOperationRecord` and `MultiResponse`.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from kazoo.exceptions import EXCEPTIONS, KazooException
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    int_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

MULTI_READ: Final = 22
FAILED: Final = -1
_END: Final = MultiHeader(-1, True, -1).serialize()  # noqa: FBT003 - a tuple of kazoo

ReadResult: TypeAlias = tuple[bytes, Any] | KazooException
"""A node's value and kazoo's statistics of it, or why it has none."""


class MultiRead:
    """Reads of several nodes in one request; each has its own result."""

    type = MULTI_READ
    watcher = None

    def __init__(self, paths: Sequence[str]) -> None:
        self._reads = [GetData(path, None) for path in paths]

    def serialize(self) -> bytes:
        """Return the request's fields, for kazoo."""
        header = MultiHeader(GetData.type, False, -1).serialize()  # noqa: FBT003
        return b"".join(
            [part for read in self._reads for part in (header, read.serialize())] + [_END]
        )

    def deserialize(self, data: bytes, offset: int) -> list[ReadResult]:
        """Return the results of an answer, in the order of the paths."""
        results: list[ReadResult] = []
        header, offset = MultiHeader.deserialize(data, offset)
        while not header.done:
            if header.type == FAILED:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                results.append(EXCEPTIONS[code]())
            else:
                value, offset = read_buffer(data, offset)
                stat = ZnodeStat._make(stat_struct.unpack_from(data, offset))
                offset += stat_struct.size
                results.append((value, stat))
            header, offset = MultiHeader.deserialize(data, offset)
        if len(results) != len(self._reads):
            text = f"{len(results)} results of {len(self._reads)} reads"
            raise ValueError(text)
        return results
