"""`make test` on each supported release of Python that this machine has: `make test-pythons`.

Leaves finding the releases to `tests.packaging.environments`, and making an environment and the
choice of tests to the Makefile.

Invariant: a release that is not on this machine does not count as passed, and does not fail the
others.
"""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from typing import Final

from tests.packaging.environments import RELEASES, ROOT, interpreters

HOW_TO_GET: Final = (
    "not found: install {release} with its venv module, so that `python{release}` is on the PATH, "
    "or by `pyenv install {release}`; or see CONTRIBUTING.md"
)


def main(wanted: Collection[str], found: Mapping[str, str]) -> int:
    """Run the tests on the wanted releases, all supported ones if none is named; print a line for
    each, and return 1 if one failed, 2 if one is not supported.
    """
    unknown = [each for each in wanted if each not in RELEASES]
    if unknown:
        print(f"not supported: {' '.join(unknown)}; choose of {' '.join(RELEASES)}")
        return 2
    results = {each: _run(each, found) for each in RELEASES if not wanted or each in wanted}
    for release, result in results.items():
        print(f"{release}  {result}")
    return int("failed" in results.values())


def _run(release: str, found: Mapping[str, str]) -> str:
    if release not in found:
        return HOW_TO_GET.format(release=release)
    print(f"Python {release}: {found[release]}", flush=True)
    command = [
        os.environ.get("MAKE", "make"),
        "--no-print-directory",
        "test",
        f"VENV=.venv-{release}",
        f"PYTHON={found[release]}",
    ]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    return "failed" if status else "passed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], interpreters()))
