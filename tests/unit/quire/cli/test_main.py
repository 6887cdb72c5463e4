"""The command answers wrong usage with a hint, and prints help without unneeded imports."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger_client.errors import LedgerClosedError, LedgerNotFoundError, QuorumTimeoutError
from metadata.errors import StoreUnavailableError
from quire.cli.main import NOUNS, main
from quire.errors import ExitCode, exit_code


def test_help_names_every_noun(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == ExitCode.DONE
    text = capsys.readouterr().out
    assert all(f"  {noun} " in text for noun in NOUNS)


def test_a_bookies_process_does_not_load_the_client() -> None:
    program = "import sys, quire.cli.bookie_server; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "bookie.main" in done.stdout.split()
    assert "ledger_client" not in done.stdout.split()


def test_help_imports_neither_client_nor_server() -> None:
    program = (
        "import sys; from quire.cli.main import main; main(['--help']); "
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = done.stderr.split()
    for heavy in ("ledger_client", "bookie", "kazoo", "rich", "aiohttp", "lmdb", "msgpack"):
        assert heavy not in imported


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_helps(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([noun, "--help"])
    assert ended.value.code == 0
    assert f"quire {noun}" in capsys.readouterr().out


def test_a_mistyped_noun_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leger"]) == ExitCode.USAGE
    assert "did you mean `quire ledger`?" in capsys.readouterr().err


def test_without_an_address_the_error_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUIRE_METADATA", raising=False)
    assert main(["ledger", "list", "-o", "json"]) == ExitCode.USAGE
    told = json.loads(capsys.readouterr().err)
    assert told["error"] == "UsageError"
    assert told["try_next"].startswith("quire up")


@pytest.mark.parametrize("text", ["-1", "x", str(2**63)])
def test_a_wrong_ledger_id_is_refused(text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ledger", "show", text])
    assert ended.value.code == ExitCode.USAGE


def test_an_entry_id_that_no_entry_can_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    too_large = str(2**63 - 1)
    for words in (
        ["bookie", "entry", "bookie-1", "7", too_large],
        ["ledger", "read", "7", "--first", too_large],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--metadata", "memory://"])
        assert ended.value.code == ExitCode.USAGE
        assert "not an entry id" in capsys.readouterr().err


def test_a_bookie_is_not_compared_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bookie", "compare", "bookie-1", "bookie-1", "7", "--metadata", "memory://"]
    assert main(words) == ExitCode.USAGE
    assert "both bookie-1" in capsys.readouterr().err


def test_a_missing_segment_file_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bookie", "dump", str(tmp_path / "log" / "00000001.log")]) == ExitCode.USAGE
    assert "there is no file" in capsys.readouterr().err


def test_python_without_assertions_is_refused() -> None:
    command = [sys.executable, "-O", "-m", "quire.cli.main", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert "-O" in done.stderr


def test_config_show_prints_the_origin_of_a_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "quire.toml"
    tables = '[bookie]\nport = 4181\ndata_dir = "here"\n[broker]\nbroker_id = 7\n'
    file.write_text(f"{tables}[gateway]\nport = 0\n")
    monkeypatch.setenv("QUIRE_BOOKIE_WEIGHT", "7")
    assert main(["config", "show", "--config", str(file), "-o", "json"]) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    rows = {row["option"]: row for row in found if row["server"] in ("bookie", "broker")}
    assert len(rows) < len(found)
    assert (rows["port"]["value"], rows["port"]["origin"]) == (4181, str(file))
    assert (rows["weight"]["value"], rows["weight"]["origin"]) == (7, "QUIRE_BOOKIE_WEIGHT")
    assert rows["location"]["origin"] == "default"
    assert (rows["broker_id"]["value"], rows["broker_id"]["origin"]) == (7, str(file))
    assert rows["broker_id"]["server"] == "broker"


def test_config_check_suggests_the_right_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "quire.toml"
    file.write_text("[bookie]\nprot = 1\n")
    assert main(["config", "check", str(file)]) == ExitCode.USAGE
    assert "did you mean port?" in capsys.readouterr().err
    file.write_text("[broker]\nlisteneers = 'PLAINTEXT://:1'\n")
    assert main(["config", "check", str(file)]) == ExitCode.USAGE
    assert "did you mean listeners?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["ledger", "--help"], ["config", "show"]])
def test_an_output_that_cannot_be_written_is_no_defect(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "quire.cli.main", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == ExitCode.REFUSED
    first, second = done.stderr.splitlines()
    assert first == "quire: the output cannot be written: No space left on device"
    assert second.startswith("       try: ")


def test_characters_that_the_output_cannot_show_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "quire.toml"
    file.write_text('[bookie]\ndata_dir = "日本"\n', "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "quire.cli.main", "config", "show", "--config", str(file)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert r"\u65e5\u672c" in done.stdout


def test_errors_of_the_cluster_have_their_status() -> None:
    assert exit_code(LedgerNotFoundError("no")) == ExitCode.NOT_FOUND
    assert exit_code(LedgerClosedError("no")) == ExitCode.REFUSED
    assert exit_code(QuorumTimeoutError("no")) == ExitCode.UNAVAILABLE
    assert exit_code(StoreUnavailableError("zk", "no")) == ExitCode.UNAVAILABLE
    assert exit_code(KeyError("no")) == ExitCode.DEFECT
