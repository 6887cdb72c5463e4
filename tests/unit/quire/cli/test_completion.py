"""Scripts of completion: shells accept them, and complete nouns, verbs and options."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from quire.cli.completion import SHELLS
from quire.cli.main import main
from quire.errors import ExitCode

CHECKS = {"bash": ("bash", "-n"), "zsh": ("zsh", "-n"), "fish": ("fish", "--no-execute")}


@pytest.fixture
def script(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Path:
    """Write the script of a shell; skip the test where the shell is missing."""
    shell: str = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == ExitCode.DONE
    path = tmp_path / f"quire.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_the_shell_accepts_its_script(script: Path) -> None:
    command = [*CHECKS[script.suffix[1:]], str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def completed_by_bash(script: Path, *words: str) -> list[str]:
    line = " ".join(words)
    program = (
        f"source {shlex.quote(str(script))}; "
        f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; "
        f"_shtab_quire quire {words[-1]} {words[-2]}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_nouns_verbs_and_options(script: Path) -> None:
    assert completed_by_bash(script, "quire", "le") == ["ledger"]
    assert completed_by_bash(script, "quire", "ledger", "ta") == ["tail"]
    assert completed_by_bash(script, "quire", "ledger", "tail", "--li") == ["--lines"]
    assert "--data-dir" in completed_by_bash(script, "quire", "bookie", "run", "--data")


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes_nouns_and_verbs(script: Path) -> None:
    for line, wanted in (("quire le", "ledger"), ("quire ledger ta", "tail")):
        program = f"source {shlex.quote(str(script))}; complete -C '{line}'"
        done = subprocess.run(["fish", "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.split("\t")[0] == wanted
