"""The certificate of a server process: new files, what is logged of them, and metrics."""

import asyncio
import datetime
import logging
from pathlib import Path

import pytest

from quire.local.development_certificates import DevelopmentAuthority
from quire.local.secure_directory import SecureDirectory
from quire.server import served_tls
from quire.server.metrics import metrics_text
from quire.server.served_tls import ServedTls
from quire.server.server_log import LOGGER, ServerLog
from quire.server.server_options import SecurityOptions, TlsMode

HOUR_S = 3_600


def metric(tls: ServedTls, name: str) -> float:
    lines = metrics_text(tls).decode().splitlines()
    return next(
        float(line.split()[1]) for line in lines if line.startswith(f"quire_bookie_tls_{name} ")
    )


async def until(caplog: pytest.LogCaptureFixture, event: str) -> None:
    async with asyncio.timeout(30):
        while event not in caplog.messages:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)


async def test_new_files_are_loaded_and_unusable_ones_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(served_tls, "FILES_CHECK_S", 0.01)
    caplog.set_level(logging.INFO, LOGGER)
    directory = SecureDirectory(tmp_path / "old")
    directory.fill()
    files = directory.certificate_options("bookie")
    options = SecurityOptions(tls=TlsMode.REQUIRED, **files)  # type: ignore[arg-type]
    tls = ServedTls("bookie", options, ServerLog(asyncio.get_running_loop().time))
    listening = tls.listening
    assert listening is not None
    assert listening.is_required
    old, expires_s = listening.context(), metric(tls, "certificate_expires_seconds")
    watching = asyncio.create_task(tls.watch())
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
    authority = DevelopmentAuthority(tmp_path / "new", lambda: int(1_000 * later.timestamp()))
    new = authority.issue("bookie")
    Path(options.tls_key_file).write_bytes(new.key.read_bytes())
    await until(caplog, "certificate not loaded")
    assert metric(tls, "certificate_unusable") == 1
    assert listening.context() is old
    Path(options.tls_cert_file).write_bytes(new.certificate.read_bytes())
    await until(caplog, "certificate loaded")
    assert metric(tls, "certificate_unusable") == 0
    assert metric(tls, "certificate_expires_seconds") > expires_s + HOUR_S
    assert listening.context() is not old, "new connections use it"
    watching.cancel()


async def test_without_tls_there_is_nothing_to_serve_or_to_watch() -> None:
    tls = ServedTls("bookie", SecurityOptions(), ServerLog(lambda: 0.0))
    assert tls.listening is None
    assert metrics_text(tls) == b""
    await tls.watch()
