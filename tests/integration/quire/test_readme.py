"""What the README shows is run as it stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.integration.quire.command import TIMEOUT_S, RunningCluster, environment

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
SNIPPET = re.compile(r"<!-- run: (?P<how>[^>]*) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)


def snippets(how: str) -> list[str]:
    found = [match["text"] for match in SNIPPET.finditer(README) if match["how"].startswith(how)]
    assert found, f"the README has no snippet marked {how!r}"
    return found


def run_python(name: str, *words: str, metadata: str | None) -> str:
    (text,) = snippets(f"python, {name}")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text, *words],
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


def test_a_cluster_inside_a_test() -> None:
    assert run_python("in_a_test.py", metadata=None).strip() == "1"


def test_shell_lines(cluster: RunningCluster) -> None:
    for text in snippets("shell"):
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


def test_the_start_command_is_one_that_exists() -> None:
    (text,) = snippets("background")
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
