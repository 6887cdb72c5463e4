"""A directory of results: runs are added, never replaced; runs of another kind are refused."""

import json
from pathlib import Path

import pytest

from quire.bench.comparison import (
    ResultsError,
    locked,
    next_repetition,
    read_comparison,
    write_run,
)
from quire.bench.results import Cell, FailedRun
from quire.bench.scenarios import BASE_SECONDS, BY_NAME
from quire.cli.main import main
from quire.errors import ExitCode
from tests.support.quire.compare.samples import run_of


def test_new_runs_follow_existing_ones(tmp_path: Path) -> None:
    run = run_of()
    scale = run.seconds / BY_NAME[run.cell.scenario].seconds
    assert next_repetition(tmp_path, entry_bytes=run.entry_bytes, scale=scale) == 0
    write_run(tmp_path, run)
    write_run(tmp_path, FailedRun(Cell("fixed-2", "steady", 5.0, 3), "no Java"))
    assert next_repetition(tmp_path, entry_bytes=run.entry_bytes, scale=scale) == 4
    with pytest.raises(FileExistsError):
        write_run(tmp_path, run)


def test_runs_that_cannot_be_compared_are_kept_apart(tmp_path: Path) -> None:
    run = run_of()
    write_run(tmp_path, run)
    scale = run.seconds / BY_NAME[run.cell.scenario].seconds
    for entry_bytes, other in ((run.entry_bytes + 1, scale), (run.entry_bytes, 2 * scale)):
        with pytest.raises(ResultsError, match="use another directory"):
            next_repetition(tmp_path, entry_bytes=entry_bytes, scale=other)
    assert BASE_SECONDS > 0


def test_one_comparison_at_a_time_adds_runs(tmp_path: Path) -> None:
    refused = pytest.raises(ResultsError, match="another comparison")
    with locked(tmp_path / "runs"), refused, locked(tmp_path / "runs"):
        pytest.fail("it is locked")
    with locked(tmp_path / "runs"):
        assert (tmp_path / "runs").is_dir()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"quire": 7}', "null"])
def test_a_foreign_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a--b--c--d.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"a--b--c--d\.json is not a result"):
        read_comparison(tmp_path)
    assert main(["bench", "report", "--out", str(tmp_path)]) == ExitCode.USAGE


def test_a_broken_description_of_the_machine_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, run_of())
    (tmp_path / "machine.json").write_text(json.dumps(7))
    with pytest.raises(ResultsError, match=r"machine\.json"):
        read_comparison(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sweep", "abc"], "'abc' is not a number"),
        (["--sweep", "0"], "use 1 to 1,000,000"),
        (["--sweep", "500,"], "'' is not a number"),
        (["--seconds", "abc"], "'abc' is not a number"),
        (["--rate", "nan"], "use 1 to"),
        (["--entry-bytes", "10000000"], "8,388,608"),
        (["--entry-bytes", "12.5"], "use a whole number"),
    ],
)
def test_wrong_numbers_are_usage_errors(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "compare", *words])
    assert ended.value.code == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_an_unusable_directory_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for where in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["bench", "compare", "--out", str(where)]) == ExitCode.USAGE
        assert "cannot be written" in capsys.readouterr().err
