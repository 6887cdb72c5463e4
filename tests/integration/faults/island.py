"""Bookie in a separate network namespace, behind a virtual wire that can be cut in one direction.

Leaves the actions to the tests. Needs root and `ip`: see `can_have_islands`.

Invariant: namespace and wire are removed again, even if a test fails.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from metadata.ids import BookieId
from quire.bench.injection import DelayingProxy
from quire.local.child_process import ChildProcess
from tests.until import WAIT_S

_COUNTER: Final = itertools.count(1)


def can_have_islands() -> bool:
    """Return whether this process may make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"quire-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


class Island:
    """One bookie behind a wire, and the wire."""

    def __init__(self, name: str, ours: str, theirs: str) -> None:
        self.bookie_id = BookieId("")
        self._name = name
        self._ours = ours
        self._theirs = theirs

    def lose_its_answers(self) -> None:
        """Drop all packets from the bookie to us; it still receives ours."""
        _ip("-n", self._name, "route", "add", "blackhole", f"{self._ours}/32")

    def lose_our_requests(self) -> None:
        """Drop all packets from us to the bookie; its packets arrive."""
        _ip("route", "add", "blackhole", f"{self._theirs}/32")

    def heal(self) -> None:
        """Let all packets through again."""
        for words in (
            ("-n", self._name, "route", "del", "blackhole", f"{self._ours}/32"),
            ("route", "del", "blackhole", f"{self._theirs}/32"),
        ):
            subprocess.run(["ip", *words], capture_output=True, check=False)  # one is absent


@asynccontextmanager
async def island(metadata_uri: str, directory: Path) -> AsyncIterator[Island]:
    """Make a namespace and a wire, and start a bookie there."""
    count = next(_COUNTER)  # a removed namespace removes its wire only later
    number, unique = (os.getpid() + count) % 200 + 20, f"{os.getpid()}-{count}"
    name = f"quire-{unique}"
    ours, theirs = f"10.213.{number}.1", f"10.213.{number}.2"
    made = Island(name, ours, theirs)
    _ip("netns", "add", name)
    try:
        near, far = f"qa{unique}", f"qb{unique}"
        _ip("link", "add", near, "type", "veth", "peer", "name", far)
        _ip("link", "set", far, "netns", name)
        _ip("addr", "add", f"{ours}/24", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", name, "addr", "add", f"{theirs}/24", "dev", far)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", far, "up")
        async with _relay(ours, metadata_uri) as uri:
            process = _bookie(name, theirs, uri, directory)
            await process.start(os.environ)
            try:
                made.bookie_id = BookieId(json.loads(await process.first_line(WAIT_S))["id"])
                yield made
            finally:
                made.heal()
                await process.stop()  # not killed: no later ledger may find it registered
    finally:
        _ip("netns", "del", name)  # this removes the wire too


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _bookie(namespace: str, host: str, uri: str, directory: Path) -> ChildProcess:
    options = {
        "data-dir": str(directory / "island"),
        "metadata": uri,
        "host": host,
        "reserve-bytes-min": "1048576",
        "reserve-share": "0",
        "segment-bytes-max": "16777216",
        "disk-high-mark": "1.0",
        "disk-low-mark": "1.0",
        "location": "/island/island/island",
        "format-if-empty": "island",
    }
    flags = [word for key, value in options.items() for word in (f"--{key}", value)]
    start = ["ip", "netns", "exec", namespace, sys.executable, "-m", "quire.cli.main"]
    command = [*start, "bookie", "run", *flags, "--allow-plaintext", "--die-with-parent"]
    return ChildProcess("island", command, directory / "island.log")


@asynccontextmanager
async def _relay(host: str, metadata_uri: str) -> AsyncIterator[str]:
    """Make ZooKeeper, which listens on our loopback, reachable over the wire."""
    parts = urlsplit(metadata_uri)
    async with aclosing(await DelayingProxy(parts.netloc).start(host)) as proxy:
        yield f"{parts.scheme}://{proxy.address}{parts.path}"
