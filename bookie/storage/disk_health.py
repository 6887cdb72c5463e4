"""Notice of a disk that hangs: a write or sync that does not return.

Leaves recording what is under way to `bookie.files.under_way`, readiness to
`bookie.bookie_process`, and log lines and metrics to whoever listens to
`bookie.storage.writability`.

Invariants: a hang is noticed by two looks in a row, so that a process that was stopped for long
does not take what it finds afterwards for a hang; while the disk hangs the bookie is not
registered, and refuses ordinary adds.
Source: reliability, "A hung disk"; protocol rule 2.1.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from bookie.files.under_way import Operation, UnderWay
from bookie.storage.writability import Reason, Writability

LOOK_INTERVAL_S_MAX: Final = 1.0
GUARD_GRACE_S: Final = 5.0
"""The guard acts when the event loop has not looked for so long, twice."""


class Withdrawable(Protocol):
    """A registration that can be taken away and made again."""

    def withdraw(self) -> None:
        """Take it away until `restore`."""

    def restore(self) -> None:
        """Make it again."""


class DiskHealth:
    """Looks at the oldest operation under way, from `start` to `stop`."""

    def __init__(
        self,
        under_way: UnderWay,
        hung_s: float,
        writability: Writability,
        registration: Withdrawable,
    ) -> None:
        self.looked_s = 0.0
        """When the loop last looked, by its clock."""
        self.hung: str | None = None
        """What hangs, for people; None when nothing does."""
        self._under_way = under_way
        self._hung_s = hung_s
        self._writability = writability
        self._registration = registration
        self._suspect: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look now and then, on the running loop."""
        loop = asyncio.get_running_loop()
        self.looked_s = loop.time()
        interval_s = min(LOOK_INTERVAL_S_MAX, self._hung_s / 4)
        self._timer = loop.call_later(interval_s, self._look_and_go_on)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_and_go_on(self) -> None:
        self.start()
        oldest = self._under_way.oldest()
        if oldest is None or self.looked_s - oldest.began_s < self._hung_s:
            self._suspect = None
            self._note_answer()
        elif oldest.number == self._suspect:
            self._note_hang(oldest)
        else:
            self._suspect = oldest.number

    def _note_hang(self, oldest: Operation) -> None:
        seconds = self.looked_s - oldest.began_s
        is_new = self.hung is None
        self.hung = f"the disk hangs: {oldest.what} has not returned for {seconds:.0f} s"
        if is_new:
            self._writability.begin(Reason.DISK_HUNG, self.hung)
            self._registration.withdraw()

    def _note_answer(self) -> None:
        if self.hung is not None:
            self.hung = None
            self._writability.end(Reason.DISK_HUNG)
            self._registration.restore()


class HangGuard:
    """A thread that acts when the event loop itself hangs in a small write (decision 0008), so that
    nobody else can.
    """

    def __init__(
        self,
        under_way: UnderWay,
        looked_s: Callable[[], float],
        hung_s: float,
        give_up: Callable[[str], None],
        grace_s: float = GUARD_GRACE_S,
    ) -> None:
        """Begin. `looked_s` tells when the loop last looked; the thread calls `give_up` once, with
        the reason.
        """
        self._under_way = under_way
        self._looked_s = looked_s
        self._hung_s = hung_s
        self._give_up = give_up
        self._grace_s = grace_s
        self._stopping = threading.Event()
        threading.Thread(target=self._watch, name="hang-guard", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopping.set()

    def _watch(self) -> None:
        suspect: int | None = None
        while not self._stopping.wait(self._grace_s):
            oldest = self._under_way.oldest()
            now_s = time.monotonic()
            if (
                oldest is None
                or now_s - oldest.began_s < self._hung_s
                or now_s - self._looked_s() < self._grace_s
            ):
                suspect = None
            elif oldest.number == suspect:
                self._give_up(f"{oldest.what} has held the event loop for {self._hung_s:.0f} s")
                return
            else:
                suspect = oldest.number
