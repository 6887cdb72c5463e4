"""Units of systemd: they are valid, their services are confined, and their commands exist."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from quire.cli.main import parser_of
from quire.errors import ExitCode
from quire.server.process import EXIT_FAILED, EXIT_REFUSED

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/quire/bin/quire"
EXPOSURE_MAX = 20
"""Highest accepted exposure that systemd-analyze computes, in tenths: 20 is 2.0 of 10."""


def unit_of(path: Path) -> ConfigParser:
    # Some names may occur several times.
    unit = ConfigParser(strict=False, interpolation=None, delimiters="=")
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names have capitals
    unit.read(path)
    return unit


def test_each_kind_of_server_has_a_unit() -> None:
    assert [unit.name for unit in UNITS] == [
        "quire-bookie@.service",
        "quire-broker.service",
        "quire-console.service",
        "quire-gateway.service",
        "quire-repair.service",
        "quire-zookeeper.service",
    ]


@pytest.mark.parametrize("path", UNITS, ids=lambda each: each.name)
def test_the_command_exists(path: Path) -> None:
    service = unit_of(path)["Service"]
    program, noun, *words = service["ExecStart"].split()
    assert program == PROGRAM
    parser = parser_of(noun)
    assert parser.parse_args(words)
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert int(service["WatchdogSec"]) > 0


@pytest.mark.parametrize("path", UNITS, ids=lambda unit: unit.name)
def test_a_start_that_cannot_help_is_not_repeated(path: Path) -> None:
    service = unit_of(path)["Service"]
    statuses = set(map(int, service["RestartPreventExitStatus"].split()))
    assert statuses == {ExitCode.USAGE, ExitCode.REFUSED} == {ExitCode.USAGE, EXIT_REFUSED}
    assert int(ExitCode.UNAVAILABLE) == EXIT_FAILED
    assert service["Restart"] == "on-failure"


@pytest.mark.parametrize("path", UNITS, ids=lambda unit: unit.name)
def test_no_service_is_kept_from_the_boot_id(path: Path) -> None:
    """Without it, a bookie that was killed waits for its old session to end."""
    assert unit_of(path)["Service"].get("ProcSubset", "all") == "all"


def test_a_start_that_reads_a_large_index_is_not_ended() -> None:
    """Without this, systemd ends a start after 90 s, and begins it again for ever."""
    (path,) = (unit for unit in UNITS if unit.name == "quire-bookie@.service")
    assert unit_of(path)["Service"]["TimeoutStartSec"] == "infinity"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a directory with the units, whose program exists here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in UNITS:
        name = unit.name.replace("@.", "@disk1.")
        (tmp_path / name).write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    return tmp_path


@pytest.mark.parametrize("path", UNITS, ids=lambda each: each.name)
def test_systemd_accepts_it_and_finds_it_confined(installed: Path, path: Path) -> None:
    unit = str(installed / path.name.replace("@.", "@disk1."))
    security = ("security", "--offline=true", f"--threshold={EXPOSURE_MAX}")
    for words in (("verify",), security):
        done = subprocess.run(
            ["systemd-analyze", *words, unit], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
