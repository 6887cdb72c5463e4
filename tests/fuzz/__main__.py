"""`python -m tests.fuzz --frames 1000000 --seed 1 --workers 2`: damaged bytes into every parser.

Prints one JSON object. The exit status is 1 if a parser did anything but return or raise its own
error, needed seconds for one input, or memory grew by more than 64 MB. `--replay HEX` feeds one
input to one target, `--block NUMBER` repeats one block.
"""

import argparse
import json
import math
import sys
import time
from typing import Final

from tests.fuzz.findings import Tally
from tests.fuzz.runner import all_targets, plan, run, summarise
from tests.fuzz.targets import Target

FRAMES_DEFAULT: Final = 200_000


def main() -> int:
    """Run the fuzzer."""
    targets = all_targets()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--frames", type=int, default=FRAMES_DEFAULT, help="for all targets together"
    )
    parser.add_argument("--target", nargs="+", choices=list(targets), default=list(targets))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="maximum run time")
    parser.add_argument("--replay", metavar="HEX", help="feed this input to each --target")
    parser.add_argument("--forged", action="store_true", help="the input has corrected checksums")
    parser.add_argument("--block", type=int, help="feed this block of --seed to each --target")
    given = parser.parse_args()
    chosen = [targets[name] for name in given.target]
    if given.replay is not None or given.block is not None:
        return _again({name: _replay(targets[name], given) for name in given.target})
    began = time.monotonic()
    done = run(plan(chosen, given.frames, given.seed), given.workers, given.seconds)
    summary = summarise(done, time.monotonic() - began, given.seed)
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 0 if summary["is_well"] else 1


def _replay(target: Target, given: argparse.Namespace) -> Tally:
    if given.replay is not None:
        return target.replay(bytes.fromhex(given.replay), is_forged=given.forged)
    tally = Tally()
    target.run_block(given.seed, given.block, tally)
    return tally


def _again(tallies: dict[str, Tally]) -> int:
    shown = {name: tally.as_json() for name, tally in tallies.items()}
    sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    return int(any(tally.findings for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
