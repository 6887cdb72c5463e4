"""The wheel in a bare environment, without extras, from another directory."""

import json
from pathlib import Path

import pytest

from tests.packaging.environments import PROJECT, build_wheel, interpreters, make_environment, run

EVERY_VERB = Path(__file__).with_name("every_verb.py")
REACHED = 200
"""Status of a verb that got as far as the network."""
NEEDS_EXTRA = {
    "server": ("bookie run", "bookie format", "demo", "gateway run", "tls init", "up"),
    "broker": ("broker run", "topic list", "topic produce"),
    "console": ("console",),
    "server,spark": ("spark scrub",),
}
"""Some verbs that do not run without an extra."""
INTERPRETERS = interpreters()

pytestmark = [pytest.mark.integration, pytest.mark.packages, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=INTERPRETERS)
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a new environment of each release of Python; return its Python."""
    directory = tmp_path_factory.mktemp("bare")
    wheel = build_wheel(directory)
    return make_environment(directory / "venv", wheel, python=INTERPRETERS[request.param])


def test_the_command_says_its_version(python: Path) -> None:
    done = run(python, str(python.with_name("quire")), "--version")
    assert done.stdout == f"quire {PROJECT['version']}\n"


def test_a_client_is_imported_without_packages_of_servers(python: Path) -> None:
    program = "import sys, ledger_client; ledger_client.LedgerClient; print(*sys.modules)"
    done = run(python, str(python), "-c", program)
    assert done.returncode == 0, done.stderr
    assert not {"aiohttp", "lmdb", "rich", "cryptography"} & set(done.stdout.split())


def test_every_verb_runs_or_says_which_extra_it_needs(python: Path) -> None:
    done = run(python, str(python), str(EVERY_VERB))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for act, (status, remarks) in found.items():
        assert status in (0, 1, 2, 4, 6, REACHED), (act, status, remarks)
        assert "Traceback" not in remarks, (act, remarks)
    for extra, acts in NEEDS_EXTRA.items():
        for act in acts:
            status, remarks = found[act]
            assert status == 2, (act, remarks)
            assert "which is not installed" in remarks
            assert f"{python} -m pip install 'quire-ledger[{extra}]'" in remarks


def test_the_hint_of_a_missing_extra_keeps_the_installed_release(python: Path) -> None:
    done = run(python, str(python), "-m", "pip", "install", "--no-deps", "quire-ledger[server]")
    assert done.returncode == 0, done.stderr
    assert "already satisfied" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_needs_no_extra(python: Path, shell: str) -> None:
    done = run(python, str(python.with_name("quire")), "completion", shell)
    assert done.returncode == 0, done.stderr
    assert "tail" in done.stdout
