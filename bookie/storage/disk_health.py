"""Detection of a disk that hangs: a write or sync does not return.

Leaves the record of running operations to `bookie.files.running_operations`, readiness to
`bookie.bookie_process`, and log lines and metrics to the listeners of `bookie.storage.writability`.

Invariants: a hang is reported after two checks in a row, so that a process that was paused for long
does not report one; while the disk hangs, the bookie is not registered and refuses ordinary adds.
Source: reliability design, "A hung disk"; protocol rule 2.1.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from bookie.files.running_operations import RunningOperation, RunningOperations
from bookie.storage.writability import Reason, Writability

CHECK_INTERVAL_S_MAX: Final = 1.0
GUARD_GRACE_S: Final = 5.0
"""The guard acts after two of its checks, this far apart, found that the event loop did not check
for this long, in seconds.
"""


class RemovableRegistration(Protocol):
    """A registration that can be removed and added again."""

    def withdraw(self) -> None:
        """Remove the registration until `restore`."""

    def restore(self) -> None:
        """Add the registration again."""


class DiskHealth:
    """Periodic check of the oldest running operation, from `start` to `stop`."""

    def __init__(
        self,
        under_way: RunningOperations,
        hung_s: float,
        writability: Writability,
        registration: RemovableRegistration,
    ) -> None:
        self.checked_s = 0.0
        """Time of the last check, by the loop's clock."""
        self.hung: str | None = None
        """Description of the hang for operators; None when the disk does not hang."""
        self._under_way = under_way
        self._hung_s = hung_s
        self._writability = writability
        self._registration = registration
        self._suspect: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the periodic checks on the running loop."""
        loop = asyncio.get_running_loop()
        self.checked_s = loop.time()
        interval_s = min(CHECK_INTERVAL_S_MAX, self._hung_s / 4)
        self._timer = loop.call_later(interval_s, self._check_and_repeat)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_and_repeat(self) -> None:
        self.start()
        oldest = self._under_way.oldest()
        if oldest is None or self.checked_s - oldest.began_s < self._hung_s:
            self._suspect = None
            self._note_answer()
        elif oldest.number == self._suspect:
            self._note_hang(oldest)
        else:
            self._suspect = oldest.number

    def _note_hang(self, oldest: RunningOperation) -> None:
        seconds = self.checked_s - oldest.began_s
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
    """Thread that acts when the event loop itself hangs in a small write (decision 0008) and
    therefore cannot act.
    """

    def __init__(
        self,
        under_way: RunningOperations,
        checked_s: Callable[[], float],
        hung_s: float,
        on_hang: Callable[[str], None],
        grace_s: float = GUARD_GRACE_S,
    ) -> None:
        """Start the thread. `checked_s` returns the time of the loop's last check. The thread calls
        `on_hang` once, with the reason.
        """
        self._under_way = under_way
        self._checked_s = checked_s
        self._hung_s = hung_s
        self._on_hang = on_hang
        self._grace_s = grace_s
        self._stopping = threading.Event()
        threading.Thread(target=self._watch, name="hang-guard", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()

    def _watch(self) -> None:
        suspect: int | None = None
        while not self._stopping.wait(self._grace_s):
            oldest = self._under_way.oldest()
            now_s = time.monotonic()
            if (
                oldest is None
                or now_s - oldest.began_s < self._hung_s
                or now_s - self._checked_s() < self._grace_s
            ):
                suspect = None
            elif oldest.number == suspect:
                self._on_hang(f"{oldest.what} has held the event loop for {self._hung_s:.0f} s")
                return
            else:
                suspect = oldest.number
