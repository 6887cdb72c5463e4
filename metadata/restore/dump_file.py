"""Lines of a dump's file: its head, one line for each node, and its end with a checksum.

Leaves which nodes are dumped to `dump_contents.py`, and writing them to `restoring.py`.

Format: text, UTF-8, one JSON object per line:

    head  {"kind": "dump", "format": 1, "taken_ms": int, "build": str}
    node  {"kind": "node", "path": str, "version": int, "value": base64 str}; a node's line may have
          another kind, and fields for people, which a restore does not read
    end   {"kind": "end", "node_count": int, "sha256": hex digits, of all lines before it}

Invariants: a file without its end, or with another checksum, is refused; for any bytes, reading
yields nodes or raises DumpFormatError.

Source: metadata design, "Dump and restore".
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from metadata.errors import DumpFormatError
from metadata.restore.dump_contents import DumpedNode
from metadata.store.interface import VALUE_BYTES_MAX

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a line: a value of VALUE_BYTES_MAX as base64, and its fields for people."""

_FORMAT: Final = 1
_HEAD: Final = "dump"
_END: Final = "end"


class DumpWriter:
    """Makes the lines of one dump, in order."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._node_count = 0

    def head(self, taken_ms: int, build: str) -> str:
        """Return the first line."""
        return self._line({"kind": _HEAD, "format": _FORMAT, "taken_ms": taken_ms, "build": build})

    def node(self, node: DumpedNode, shown: Mapping[str, object]) -> str:
        """Return a node's line; `shown` has its kind and fields for people."""
        self._node_count += 1
        value = base64.b64encode(node.value).decode("ascii")
        stored = {"path": node.path, "version": node.version, "value": value}
        return self._line({"kind": "node", **shown, **stored})

    def end(self) -> str:
        """Return the last line."""
        digest = self._digest.hexdigest()
        return self._line({"kind": _END, "node_count": self._node_count, "sha256": digest})

    def _line(self, fields: Mapping[str, object]) -> str:
        line = json.dumps(fields)
        self._digest.update(line.encode() + b"\n")
        return line


class DumpReader:
    """Reads the lines of one dump. Iterate over `nodes` to the end before the dump is trusted."""

    def __init__(self, name: str, lines: Iterable[bytes]) -> None:
        """`name` is for messages; each line ends with a newline."""
        self._name = name
        self._lines = lines
        self._digest = hashlib.sha256()
        self.taken_ms = 0
        """Time of the dump, once the first node was read."""
        self.node_count = 0
        self.digest = b""
        """SHA-256 of the dump without its end, after the last node."""

    def nodes(self) -> Iterator[DumpedNode]:
        """Yield each node; return only if the dump is complete. Raises DumpFormatError."""
        is_ended = False
        for number, line in enumerate(self._lines, start=1):
            if is_ended:
                raise self._error(number, "there are lines behind its end")
            fields = self._fields(number, line)
            if number == 1:
                self._read_head(fields)
            elif fields.get("kind") == _END:
                self._check_end(number, fields)
                is_ended = True
            else:
                self.node_count += 1
                yield self._node(number, fields)
            self._digest.update(line)
        if not is_ended:
            raise DumpFormatError(self._name, "it has no end: the dump was interrupted")

    def _fields(self, number: int, line: bytes) -> Mapping[str, object]:
        if len(line) > LINE_BYTES_MAX:
            raise self._error(number, f"it has more than {LINE_BYTES_MAX} bytes")
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._error(number, f"it is not JSON ({error})") from None
        if not isinstance(fields, dict):
            raise self._error(number, "it is not an object")
        return fields

    def _read_head(self, fields: Mapping[str, object]) -> None:
        taken_ms = fields.get("taken_ms")
        if fields.get("kind") != _HEAD or not _is_count(taken_ms):
            raise self._error(1, "it is not the head of a dump")
        if fields.get("format") != _FORMAT:
            text = f"its format is {fields.get('format')!r}, this release reads {_FORMAT}"
            raise self._error(1, text)
        assert isinstance(taken_ms, int)
        self.taken_ms = taken_ms

    def _node(self, number: int, fields: Mapping[str, object]) -> DumpedNode:
        path, text, version = fields.get("path"), fields.get("value"), fields.get("version")
        if not isinstance(path, str) or not _is_path(path) or not isinstance(text, str):
            raise self._error(number, "it has no path and value")
        if not _is_count(version):
            raise self._error(number, "it has no version")
        assert isinstance(version, int)
        try:
            value = base64.b64decode(text, validate=True)
        except ValueError:
            raise self._error(number, "its value is not base64") from None
        if len(value) > VALUE_BYTES_MAX:
            raise self._error(number, f"its value has more than {VALUE_BYTES_MAX} bytes")
        return DumpedNode(path, value, version)

    def _check_end(self, number: int, fields: Mapping[str, object]) -> None:
        if fields.get("node_count") != self.node_count:
            text = f"the dump has {self.node_count} nodes instead of {fields.get('node_count')}"
            raise self._error(number, text)
        self.digest = self._digest.digest()
        if fields.get("sha256") != self.digest.hex():
            raise self._error(number, "the checksum of the dump does not match")

    def _error(self, number: int, why: str) -> DumpFormatError:
        return DumpFormatError(f"{self._name}, line {number}", why)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_path(path: str) -> bool:
    names = path.split("/")
    return (
        len(names) > 1 and not names[0] and all(name not in ("", ".", "..") for name in names[1:])
    )
