"""Faults of the metadata service in memory, which a test switches on and off."""

import asyncio
from collections.abc import Awaitable, Callable

from metadata.errors import OutcomeUnknownError, StoreUnavailableError
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import NoFaults, StoreCall
from quire.server.overriding import override

Choice = Callable[[StoreCall], bool]


class ScriptedFaults(NoFaults):
    """Applies the next of the given acts to each write in turn; "" and the end of the list mean no
    fault. All other faults meet the requests that `meets` chooses, without it all of them.

    "lost": applied, the answer lost. "dropped": not applied, outcome unknown. "late": outcome
    unknown, applied afterwards. "refused": not applied, and reported so.
    """

    def __init__(
        self, meets: Choice = lambda _: True, *, answer_s: float = 0.0, missed: int = 0
    ) -> None:
        self.acts: list[str] = []
        self.writes: list[str] = []
        self.late_s = 0.1
        self.news_s = 0.0
        self.meets = meets
        self.calls: list[StoreCall] = []
        """The requests that it met."""
        self.times: list[float] = []
        """When each of them arrived."""
        self.is_away = False
        """Whether it refuses them."""
        self.refusals = 0
        """Number of them that it still refuses."""
        self.arrival_s = 0.0
        self.answer_s = answer_s
        self.gate = asyncio.Event()
        """Lets them pass while it is set."""
        self.gate.set()
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        """Runs once, immediately before the next of them takes effect."""
        self.missed = missed
        """Number of the newest changes that a read misses which is not fresh."""
        self.missed_by_fresh = 0
        self._acting: dict[int, str] = {}

    @property
    def fresh(self) -> list[bool]:
        """Of each request, whether it waited until the server had caught up."""
        return [call.is_fresh for call in self.calls]

    @override
    async def before(self, call: StoreCall) -> None:
        meets = self.meets(call)
        if meets:
            self.calls.append(call)
            self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.arrival_s if meets else 0)
        if meets:
            await self._hinder()
        # of an earlier task with the same id, whose write failed and so had no answer to lose
        self._acting.pop(id(asyncio.current_task()), None)
        if call.is_write:
            self.writes.append(call.operation)
            await self._act(call, self.acts.pop(0) if self.acts else "")

    @override
    async def after(self, call: StoreCall) -> None:
        await asyncio.sleep(self.answer_s if self.meets(call) else 0)
        if self._acting.pop(id(asyncio.current_task()), ""):
            raise OutcomeUnknownError(call.path, "lost")

    @override
    def missed_changes(self, call: StoreCall) -> int:
        if not self.meets(call):
            return 0
        return self.missed_by_fresh if call.is_fresh else self.missed

    @override
    def watch_delay_s(self, path: str) -> float:
        return self.news_s

    async def _hinder(self) -> None:
        await self.gate.wait()
        if self.is_away or self.refusals > 0:
            self.refusals = max(0, self.refusals - 1)
            raise StoreUnavailableError("memory", "no answer")
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()

    async def _act(self, call: StoreCall, act: str) -> None:
        match act:
            case "refused":
                raise StoreUnavailableError("memory", "refused")
            case "dropped":
                raise OutcomeUnknownError(call.path, "dropped")
            case "late":
                await asyncio.sleep(self.late_s)
            case "lost":
                self._acting[id(asyncio.current_task())] = act
            case _:
                return


def is_read(call: StoreCall) -> bool:
    return not call.is_write


def is_write(call: StoreCall) -> bool:
    return call.is_write


def reads_of(store: MemoryMetadataStore) -> Choice:
    """Choose the reads of a session."""
    session_id = store.session_id
    return lambda call: not call.is_write and call.session_id == session_id


def writes_of(store: MemoryMetadataStore) -> Choice:
    """Choose the writes of a session."""
    session_id = store.session_id
    return lambda call: call.is_write and call.session_id == session_id


def reach(*parts: str) -> Choice:
    """Choose the requests whose path contains one of these texts."""
    return lambda call: any(part in call.path for part in parts)
