"""The process of `quire repair run-worker`: it repairs, tries to, or ends."""

import asyncio
from pathlib import Path

import pytest

from ledger_client.config import ClientConfig
from metadata.cancelling import cancel_and_wait
from quire.repair import main
from quire.repair.repair_process import RepairRoles
from tests.until import until, within

NOWHERE = "zk://127.0.0.1:1/quire"


async def test_a_client_file_that_cannot_be_read_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be about to be replaced: the process must not run on without repairing."""
    monkeypatch.setattr(main, "START_AGAIN_S", 0.01)
    stopping = asyncio.Event()
    address = f"{NOWHERE}?client={tmp_path / 'client.json'}"
    serving = asyncio.get_running_loop().create_task(
        main._serve(address, ClientConfig(), RepairRoles(), stopping)
    )
    try:
        await until(lambda: serving.done() or caplog.text.count("repair not started") > 1)
        assert not serving.done()
        stopping.set()
        await within(serving)
    finally:
        await cancel_and_wait(serving)


async def test_a_defect_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner starts it again. Without that, nothing would repair, and nothing would say so."""

    async def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main, "_repair", failing)
    with pytest.raises(ZeroDivisionError):
        await within(main._serve(NOWHERE, ClientConfig(), RepairRoles(), asyncio.Event()))
