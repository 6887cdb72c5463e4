"""Campaign: power cuts under a storage, whose files then lose their unsynced data.

Leaves the file system to `forgetful_server` and `forgetful_files`, the work to `storage_writer`.
The power is cut at a drawn change of the file system, or when the process is killed. The campaign
examines what a device may have kept, and starts the next process on it. Before that, processes die
without a power cut: the next one finds what they wrote and did not sync, and answers requests for
it.

In some directories old segments are damaged, and ledgers are fenced while a checkpoint stores that
(`damager`). Entries may be unknown there; fences may not be lost.

The same runs with builds that leave syncs out, with one that treats what it reads as durable, and
with one whose marks are too new. The campaign must detect each of them; otherwise its result proves
nothing.
"""

import shutil
import time
from pathlib import Path
from random import Random
from typing import Final

from bookie.files import disk_calls
from tests.faults import crash_points, fuse_wire, left_out_syncs, storage_writer
from tests.faults.budget import Budget, Summary
from tests.faults.children import Child, make_directory
from tests.faults.crash_points import wrap
from tests.faults.examining import examine_copy
from tests.faults.forgetful_server import serve_mounted
from tests.faults.promises import Promises
from tests.faults.single_log import always

CYCLES_SMALL: Final = 30
CYCLES_FULL: Final = 1_000
CONTROL_CYCLES_MAX: Final = 60
"""Maximum number of cycles to detect a build that leaves syncs out."""
LIVES_OF_A_DIRECTORY: Final = 6
CHANGES: Final = (20, 100, 300, 1_000)
CHANGES_OF_DAMAGE: Final = (5_000, 20_000)
"""Cleaning must find the damage before the cut."""
LIFE_S_MAX: Final = 1.0
LIFE_OF_DAMAGE_S_MAX: Final = 4.0
WARM_STARTS: Final = (0, 1, 1, 2)
"""Number of processes that die before the power is cut."""
DEATHS: Final = ("write.unsynced", "write.unsynced", "write.half", "head.unsynced", "rename.after")
DEATHS_AFTER_MAX: Final = 40
DAMAGE_SHARES: Final = {"": 0.5, left_out_syncs.EARLY_MARKS: 1.0}
"""Share of the directories in which old segments are damaged, by what a build leaves out."""
SERVER_S_MAX: Final = 20.0
UNMOUNT_TRIES: Final = 50
UNMOUNT_PAUSE_S: Final = 0.02


class PowerCuts:
    """Power cuts of one build."""

    def __init__(self, summary: Summary, without: str) -> None:
        self.shortcomings: list[str] = []
        self.fences_promised = self.damage_count = 0
        self._summary = summary
        self._without = without
        self._rng = Random(f"power cut {without} {summary.budget.seed}")
        self._promises = Promises()
        self._preallocates = self._damages = False

    def live_on_one_directory(self, lives: int) -> int:
        """Run cycles on one directory until the first shortcoming or `lives`; return how many."""
        parent = make_directory("power-cut", in_memory=True)
        self._promises = Promises()
        self._preallocates = self._rng.random() < 0.3
        self._damages = self._rng.random() < DAMAGE_SHARES.get(self._without, 0.0)
        (parent / "image").mkdir()
        (parent / "mounted").mkdir()
        try:
            for number in range(1, lives + 1):
                self._do_cycle(parent)
                if self.shortcomings:
                    return number
        finally:
            shutil.rmtree(parent, ignore_errors=True)
            self.fences_promised += self._promises.fence_count
            self.damage_count += self._promises.damage_count
        return lives

    def _do_cycle(self, parent: Path) -> None:
        counts = self._summary.counts
        image, left, mounted = (parent / name for name in ("image", "left", "mounted"))
        most = self._rng.choice(CHANGES_OF_DAMAGE if self._damages else CHANGES)
        cut_at = self._rng.randint(1, most)
        server_seed = str(self._rng.random())
        server = Child(lambda: serve_mounted(mounted, image, left, cut_at, server_seed))
        assert server.first_line(SERVER_S_MAX) == b"mounted", "the file system did not start"
        try:
            self._live(mounted)
        finally:
            _unmount(mounted)
        end = server.wait(SERVER_S_MAX)
        assert end.status == 0, f"the file system ended with status {end.status}"
        changes = int(end.output.split()[-1])
        if not self._without:
            counts["changes of the file system"] += changes
            counts["cut at a change" if changes >= cut_at else "cut with the process's end"] += 1
        verdict = examine_copy(left, self._promises)
        self.shortcomings += verdict.broken if self._damages else verdict.shortcomings
        shutil.rmtree(image)
        left.rename(image)
        if not self._without:
            counts["entries served"] += verdict.served

    def _live(self, mounted: Path) -> None:
        for _ in range(self._rng.choice(WARM_STARTS)):
            after = self._rng.randint(1, DEATHS_AFTER_MAX)
            self._live_until(mounted, f"{self._rng.choice(DEATHS)}:{after}")
            if not self._without:
                self._summary.counts["starts with the power on"] += 1
        self._live_until(mounted, "")

    def _live_until(self, mounted: Path, death: str) -> None:
        seed, preallocates = str(self._rng.random()), self._preallocates
        words = [str(mounted), "--seed", seed, *(["--damage"] if self._damages else ())]

        def work() -> None:
            wrap(disk_calls, "preallocation_pays", always(answer=preallocates))
            storage_writer.main(words)

        build = {left_out_syncs.VARIABLE: self._without, crash_points.VARIABLE: death}
        life_s = LIFE_OF_DAMAGE_S_MAX if self._damages else LIFE_S_MAX
        self._promises.take(Child(work, build).wait(life_s).output)


def _unmount(mounted: Path) -> None:
    """Unmount; retry while the end of a process is in progress."""
    for _ in range(UNMOUNT_TRIES):
        try:
            fuse_wire.unmount(mounted)
        except OSError:
            time.sleep(UNMOUNT_PAUSE_S)
        else:
            return


def run(budget: Budget) -> Summary:
    """Run the campaign on the normal build, and on builds without syncs."""
    wanted = budget.cycles(small=CYCLES_SMALL, full=CYCLES_FULL)
    summary = Summary("power_cut", budget, wanted)
    summary.skipped = fuse_wire.is_usable()
    if summary.skipped:
        return summary
    cuts = PowerCuts(summary, "")
    while summary.is_wanting():
        lives = min(LIVES_OF_A_DIRECTORY, wanted - summary.cycles)
        summary.cycles += cuts.live_on_one_directory(lives)
        summary.violations += cuts.shortcomings
        cuts.shortcomings = []
    summary.counts["fences promised"] = cuts.fences_promised
    summary.counts["checkpoints of damage, with fences"] = cuts.damage_count
    for without in left_out_syncs.KINDS:
        found_after = cycles_until_found_out(summary, without)
        summary.counts[f"without {without}, found out in cycle"] = found_after
        if not found_after:
            summary.violations.append(f"a build without {without} lost nothing")
    return summary


def cycles_until_found_out(summary: Summary, without: str) -> int:
    """Return the cycle in which a build that leaves syncs out broke a promise; 0 if in none."""
    cuts, done = PowerCuts(summary, without), 0
    while done < CONTROL_CYCLES_MAX:
        done += cuts.live_on_one_directory(LIVES_OF_A_DIRECTORY)
        if cuts.shortcomings:
            summary.notes.append(f"without {without}: {cuts.shortcomings[0]}")
            return done
    return 0
