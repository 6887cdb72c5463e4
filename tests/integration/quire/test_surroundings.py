"""The product where it inherits what it did not ask for, all at once: the demo must still succeed.

`tests/surroundings.py` gives all other tests the same surroundings.
"""

import json
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Final

from tests.integration.quire.command import QUIRE, TIMEOUT_S

OPEN_FILES_MAX: Final = 1_024
STRANGE: Final = {
    "COLUMNS": "20",
    "HTTP_PROXY": "http://127.0.0.1:9",  # nothing listens there
    "http_proxy": "http://127.0.0.1:9",
    "LC_ALL": "C",
    "PYTHONWARNINGS": "default",
    "TZ": "Asia/Kathmandu",
}
ABSENT: Final = ("HOME", "LANG", "LOGNAME", "NO_PROXY", "SHELL", "TERM", "USER", "no_proxy")


def _make_strange() -> None:
    """Do what `nohup`, a strict umask and a low limit do, in the child."""
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(OPEN_FILES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def test_the_demo_succeeds_in_strange_surroundings(tmp_path: Path) -> None:
    temporary = tmp_path / "a folder with spaces, whose name is long" / ("x" * 120)
    temporary.mkdir(parents=True)
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)))
    variables = {name: value for name, value in os.environ.items() if name not in ABSENT}
    done = subprocess.run(
        [*QUIRE, "demo", "--file", str(file), "-o", "json"],
        env={**variables, **STRANGE, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        preexec_fn=_make_strange,
        timeout=TIMEOUT_S,
        check=False,
    )
    told = json.loads(done.stdout or b"{}")
    assert (done.returncode, told.get("is_well")) == (0, True), done.stderr.decode()
    assert told["entry_count"] == 20_000
    assert list(temporary.iterdir()) == []
