"""The sum of the bytes that bookies wrote, over their processes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from quire.bench import runner as bookie_meters
from quire.bench.runner import BookieMeters
from quire.operate.admin_api import AdminApiError

if TYPE_CHECKING:
    from quire.local.local_server import LocalBookie


@dataclass
class FakeBookie:
    """A process, and the size of its log; None: it does not respond."""

    pid: int
    log_bytes: int | None
    is_running: bool = True

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.pid}"


@pytest.fixture
def bookies(monkeypatch: pytest.MonkeyPatch) -> list[FakeBookie]:
    """Two bookies with simulated admin servers."""
    made = [FakeBookie(1, 100), FakeBookie(2, 1_000)]

    async def answer(url: str, *, timeout_s: float) -> dict[str, dict[str, int]]:
        assert timeout_s > 0
        told = next(
            bookie.log_bytes for bookie in made if url == f"{bookie.admin_url}/api/v1/state"
        )
        if told is None:
            raise AdminApiError(url)
        return {"storage": {"log_bytes_written": told}}

    monkeypatch.setattr(bookie_meters, "get_json", answer)
    return made


def meters_of(bookies: list[FakeBookie]) -> BookieMeters:
    return BookieMeters([cast("LocalBookie", bookie) for bookie in bookies])


async def test_bytes_written_before_the_first_reading_do_not_count(
    bookies: list[FakeBookie],
) -> None:
    meters = meters_of(bookies)
    await meters.read()
    assert meters.written_bytes == 0
    bookies[0].log_bytes, bookies[1].log_bytes = 150, 1_007
    await meters.read()
    assert meters.written_bytes == 57


async def test_a_killed_bookie_counts_as_last_read_and_its_next_process_from_its_start(
    bookies: list[FakeBookie],
) -> None:
    meters = meters_of(bookies)
    await meters.read()
    bookies[0].log_bytes = 150
    await meters.read()
    bookies[0].is_running, bookies[0].log_bytes = False, 999  # not a process's response
    await meters.read()
    assert meters.written_bytes == 50
    bookies[0].pid, bookies[0].log_bytes, bookies[0].is_running = 3, 20, True
    await meters.read()
    assert meters.written_bytes == 70


async def test_a_bookie_that_does_not_respond_counts_as_last_read(
    bookies: list[FakeBookie],
) -> None:
    meters = meters_of(bookies)
    await meters.read()
    bookies[0].log_bytes = 150
    await meters.read()
    bookies[0].log_bytes = None
    await meters.read()
    assert meters.written_bytes == 50
