"""Runs the programs and commands of the README, the tutorial and the guides."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.quire.command import TIMEOUT_S, RunningCluster, environment, run_quire

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
IN_SYNC = ROOT / "docs" / "in-sync.md"
EMBEDDING = ROOT / "docs" / "embedding.md"
ENCRYPTION = ROOT / "docs" / "encryption.md"
KAFKA_PYTHON = [
    word
    for name in ("read_text", "open_text")
    for word in ("-W", f"ignore:{name} is deprecated:DeprecationWarning")
]
"""What kafka-python does when it is imported, in Python 3.11 and 3.12."""
SNIPPET = re.compile(r"<!-- run: (?P<how>[^>]*) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)


def snippets(how: str, document: Path) -> list[str]:
    matches = SNIPPET.finditer(document.read_text())
    found = [match["text"] for match in matches if match["how"].startswith(how)]
    assert found, f"{document.name} has no snippet marked {how!r}"
    return found


def run_python(name: str, *words: str, metadata: str | None, document: Path = TUTORIAL) -> str:
    (text,) = snippets(f"python, {name}", document)
    done = subprocess.run(
        [sys.executable, "-W", "error", *KAFKA_PYTHON, "-c", text, *words],
        capture_output=True,
        env={**environment(metadata), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_append_then_read(cluster: RunningCluster) -> None:
    ledger_id = run_python("append.py", metadata=cluster.metadata).strip()
    assert ledger_id.isdecimal()
    text = run_python("read.py", ledger_id, metadata=cluster.metadata)
    assert text.splitlines() == ["0 order-1", "1 order-2", "2 order-3"]


def test_a_takeover(cluster: RunningCluster) -> None:
    text = run_python("take_over.py", metadata=cluster.metadata)
    assert text.splitlines() == ["closed 0", "fenced"]


def test_the_readme_program() -> None:
    text = run_python("in_a_test.py", metadata=None, document=README)
    assert text.splitlines()[0] == "1"
    assert "b'before'" in text
    assert "b'after'" in text


def test_a_cluster_inside_a_test() -> None:
    assert run_python("in_a_test.py", metadata=None).strip() == "1"


def test_a_topic_for_a_kafka_client() -> None:
    assert run_python("topic.py", metadata=None).strip() == "order-1"


def test_in_sync_mode(cluster: RunningCluster) -> None:
    text = run_python("in_sync.py", metadata=cluster.metadata, document=IN_SYNC)
    assert text.strip() in {"2", "3"}, (
        "a member that is silent on a busy machine leaves (rule 11.3)"
    )


def test_encryption(cluster: RunningCluster) -> None:
    text = run_python("encrypted.py", metadata=cluster.metadata, document=ENCRYPTION)
    assert text.strip() == "[b'order-1', b'order-2']"


EMBEDDED = {
    "run.py": "0",
    "uvloop.py": "0 uvloop",
    "task_group.py": "299",
    "cancelled.py": "1\n[b'cancelled', b'after']",
    "threads.py": "[0, 1, 2, 3]",
    "from_a_thread.py": "0",
    "notebook.py": "0",
}
"""What each program of the page prints."""


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedding(cluster: RunningCluster, name: str) -> None:
    text = run_python(name, metadata=cluster.metadata, document=EMBEDDING)
    assert text.strip() == EMBEDDED[name]


def test_every_program_about_embedding_runs() -> None:
    matches = SNIPPET.finditer(EMBEDDING.read_text())
    names = {match["how"].partition(", ")[2] for match in matches}
    assert names == {*EMBEDDED, "processes.py", "test_application.py", "sigterm.py"}


def test_embedding_in_processes(cluster: RunningCluster, tmp_path: Path) -> None:
    (text,) = snippets("python, processes.py", EMBEDDING)
    program = tmp_path / "processes.py"
    program.write_text(text)
    variables = {**environment(cluster.metadata), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        env=variables,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == "[1000, 1000]"


def test_embedding_in_tests(tmp_path: Path) -> None:
    (text,) = snippets("pytest, test_application.py", EMBEDDING)
    (tmp_path / "test_application.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        env={**environment(None), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()
    assert "1 passed" in done.stdout.decode()


def test_embedding_closes_on_sigterm(cluster: RunningCluster) -> None:
    (text,) = snippets("python, sigterm.py", EMBEDDING)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", text],
        stdout=subprocess.PIPE,
        env={**environment(cluster.metadata), "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    ledger_id = process.stdout.readline().decode().strip()
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0
    process.stdout.close()
    shown = run_quire("ledger", "show", ledger_id, "-o", "json", metadata=cluster.metadata)
    assert json.loads(shown.stdout)["state"] == "closed"


@pytest.mark.parametrize("document", [TUTORIAL, IN_SYNC], ids=lambda path: path.name)
def test_shell_lines(cluster: RunningCluster, document: Path) -> None:
    for text in snippets("shell", document):
        for line in text.splitlines():
            assert line.startswith("$ ")
            command = line[2:].replace("quire ", f"{sys.executable} -m quire.cli.main ")
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                capture_output=True,
                env=environment(cluster.metadata),
                cwd=ROOT,
                timeout=TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, (line, done.stderr.decode())


def test_the_start_command_exists() -> None:
    (text,) = snippets("background", TUTORIAL)
    words = shlex.split(text.removeprefix("$ "))
    assert words[:2] == ["quire", "up"]
    done = subprocess.run(
        [sys.executable, "-m", "quire.cli.main", "up", "--help"],
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    for flag in (word for word in words if word.startswith("--")):
        assert flag.encode() in done.stdout
