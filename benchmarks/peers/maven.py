"""Preparation of a peer: its jars by Maven, and the load client compiled against them.

Leaves starting Java to `benchmarks.peers.java_process`, and versions to each peer's pom.xml.

Format of the cache: one directory for each peer and each text of its pom and sources, with `jars/`,
`classes/` and, once both are complete, `complete`.

Invariants: nothing is written next to the sources; an unavailable peer is PeerUnavailableError with
the reason, never a failed run.
"""

import asyncio
import hashlib
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "java"
SHARED_SOURCE: Final = SOURCES / "LoadClient.java"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
COMMAND_TIMEOUT_S: Final = 900.0
OUTPUT_TAIL_CHARACTERS: Final = 600
DIGEST_CHARACTERS: Final = 12


class PeerUnavailableError(Exception):
    """A peer is not available on this machine, for example without Maven, JDK or network."""


@dataclass(frozen=True, slots=True)
class JavaPeer:
    """A prepared peer."""

    java: str
    classpath: str
    """Its jars and the compiled load client, in the form for `java -cp`."""


def default_cache() -> Path:
    """Return the directory that keeps jars between runs, below the user's cache directory."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "quire-benchmarks" / "peers"


def cache_name(peer: str, texts: Sequence[bytes]) -> str:
    """Return the name of a peer's directory, which changes with its pom and sources."""
    digest = hashlib.sha256(b"\0".join(texts)).hexdigest()
    return f"{peer}-{digest[:DIGEST_CHARACTERS]}"


async def prepare(peer: str, cache: Path, root: Path = SOURCES) -> JavaPeer:
    """Fetch and compile a peer unless the cache has it. Raises PeerUnavailableError.

    `root` has a directory for the peer; only peers below the default root share a source file.
    """
    java, javac, maven = _find("java"), _find("javac"), _find("mvn")
    pom = root / peer / "pom.xml"
    shared = [SHARED_SOURCE] if root == SOURCES else []
    sources = [*shared, *sorted((root / peer).glob("*.java"))]
    home = cache / cache_name(peer, [path.read_bytes() for path in (pom, *sources)])
    jars, classes, complete = home / "jars", home / "classes", home / "complete"
    classpath = os.pathsep.join((str(classes), f"{jars}{os.sep}*"))
    if not complete.exists():
        shutil.rmtree(home, ignore_errors=True)
        try:
            classes.mkdir(parents=True)
        except OSError as error:
            raise PeerUnavailableError(f"the cache cannot be written: {error}") from error
        where = f"-DoutputDirectory={jars}"
        scope = "-DincludeScope=runtime"
        await _run(
            [maven, "-q", "-B", "-f", str(pom), COPY, where, scope], "Maven did not fetch it"
        )
        names = [str(path) for path in sources]
        compiling = [javac, "-cp", classpath, "-d", str(classes), *names]
        if names:
            await _run(compiling, "its load client does not compile")
        complete.touch()
    return JavaPeer(java, classpath)


def _find(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise PeerUnavailableError(f"{program} is not installed")
    return path


async def _run(command: Sequence[str], failure: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT_S)
    except TimeoutError:
        raise PeerUnavailableError(f"{failure} within {COMMAND_TIMEOUT_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        tail = output.decode(errors="replace").strip()[-OUTPUT_TAIL_CHARACTERS:]
        raise PeerUnavailableError(f"{failure}: {tail}")
