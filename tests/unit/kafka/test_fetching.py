"""What cannot be fetched is skipped with a reason: it neither fails nor is waited for again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.peers.maven import PeerUnavailableError
from tests.kafka import java_process, node_clients
from tests.kafka.consoles import go_program
from tests.kafka.fetching import UNAVAILABLE, fetched_once, run_fetch
from tests.kafka.scenario import UnavailableError
from tests.until import WAIT_S, until


@pytest.fixture(autouse=True)
def programs_that_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("go", "java", "javac", "mvn", "node", "npm"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexec sleep {WAIT_S}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(go_program, "DOWNLOAD_TIMEOUT_S", 0.1)
    for module in (go_program, java_process, node_clients):
        monkeypatch.setattr(module, "FETCH_TIMEOUT_S", 0.1)


@pytest.mark.parametrize(
    ("fetch", "arguments"),
    [
        pytest.param(go_program.built, (), id="Go"),
        pytest.param(java_process.jars, ("java",), id="Maven"),
        pytest.param(node_clients.installed, ("node",), id="npm"),
    ],
)
def test_a_fetch_that_hangs_is_not_available(
    fetch: Callable[..., object], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(UNAVAILABLE, match=r"took over 0\.1 s"):
        unkept(fetch)(*arguments)


def unkept(fetch: Callable[..., object]) -> Callable[..., object]:
    """Return the function without the memory of what it returned to tests of this process."""
    found: Callable[..., object] = fetch.__wrapped__  # type: ignore[attr-defined]
    return found


@pytest.mark.real_time
async def test_what_a_fetch_started_is_killed_with_it(tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = f"sleep {WAIT_S} & echo $! > {started}; wait"
    with pytest.raises(UnavailableError, match="took over 2 s"):
        run_fetch(["sh", "-c", program], tmp_path, {}, 2.0)
    if started.exists():
        await until(lambda: has_ended(started.read_text().strip()))


def has_ended(process: str) -> bool:
    """Return whether a process is gone, or is a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("kind", UNAVAILABLE)
def test_what_is_not_available_is_asked_for_once(kind: type[Exception]) -> None:
    asked = []

    @fetched_once
    def fetch(part: str) -> str:
        asked.append(part)
        if part == "spark":
            raise kind("it is away")
        return f"jars of {part}"

    for _ in range(2):
        assert fetch("java") == "jars of java"
        with pytest.raises(kind, match="it is away"):
            fetch("spark")
    assert asked == ["java", "spark"]
    assert set(UNAVAILABLE) == {PeerUnavailableError, UnavailableError}
