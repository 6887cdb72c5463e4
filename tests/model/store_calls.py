"""Steps of the production `LedgerStore.compare_and_set`, one answer of the metadata store at a
time.

Leaves the store's answers to `steps`. The call runs again from its start for each further answer: a
coroutine cannot be copied, but the list of answers can.

Source: protocol rules 1.2 and 1.3.
"""

from collections.abc import Generator
from random import Random
from typing import TYPE_CHECKING, cast

from metadata.errors import OutcomeUnknownError, VersionConflictError
from metadata.ids import Version
from metadata.ledgers.codec import encode_ledger_metadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.interface import MetadataStore, Stored
from quire.server.overriding import override
from tests.model.freezing import MetadataPool

if TYPE_CHECKING:
    from metadata.store.batching import BatchingStore

OK, CONFLICT, UNKNOWN, VALUE = range(4)
"""Answers: (OK, version), (CONFLICT,), (UNKNOWN,), (VALUE, metadata, version)."""
SET, GET, STORED, LOST = "set", "get", "stored", "lost"


class _NoPause(Random):
    @override
    def random(self) -> float:
        return -1.0  # makes every pause one of 0 s, which needs no loop


class _Asked:
    def __init__(self, what: str) -> None:
        self.what = what

    def __await__(self) -> Generator["_Asked", None, None]:
        yield self


class _Script:
    """Store that answers from a list, and requests more at its end."""

    def __init__(self, history: tuple[tuple[int, ...], ...], pool: MetadataPool) -> None:
        self._answers = list(history)
        self._pool = pool

    async def compare_and_set(self, path: str, _value: bytes, expected: Version) -> Version:
        answer = await self._next(SET)
        if answer[0] == CONFLICT:
            raise VersionConflictError(path, expected)
        if answer[0] == UNKNOWN:
            raise OutcomeUnknownError(path, "drawn")
        return Version(answer[1])

    async def get(self, _path: str, *, fresh: bool, agreed: bool) -> Stored:
        assert fresh
        assert not agreed
        answer = await self._next(GET)
        value = encode_ledger_metadata(self._pool.values[answer[1]])
        return Stored(value, Version(answer[2]))

    async def _next(self, what: str) -> tuple[int, ...]:
        if not self._answers:
            await _Asked(what)
        return self._answers.pop(0)


class StoreCalls:
    """Next requests of the calls, by their answers so far."""

    def __init__(self, pool: MetadataPool) -> None:
        self._pool = pool
        self._known: dict[tuple[int, int, tuple[tuple[int, ...], ...]], tuple[str, int]] = {}

    def wants(
        self, metadata: int, expected: int, history: tuple[tuple[int, ...], ...]
    ) -> tuple[str, int]:
        """Return SET or GET, or the result: STORED with the version, or LOST."""
        key = metadata, expected, history
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._run(metadata, expected, history)
        return found

    def _run(
        self, metadata: int, expected: int, history: tuple[tuple[int, ...], ...]
    ) -> tuple[str, int]:
        script = _Script(history, self._pool)
        ledgers = LedgerStore(cast("MetadataStore", script), _NoPause(0), lambda: 0)
        ledgers._writes = cast("BatchingStore", script)  # a single call is sent unchanged
        call = ledgers.compare_and_set(self._pool.values[metadata], Version(expected))
        try:
            while True:
                asked = call.send(None)
                if isinstance(asked, _Asked):
                    call.close()
                    return asked.what, 0
        except StopIteration as end:
            return STORED, cast("int", end.value)
        except VersionConflictError:
            return LOST, 0
