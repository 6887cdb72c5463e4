"""A test that leaves something behind fails, and no other does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = """
import subprocess, threading
import pytest

class Cycle:
    pass

@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()

def test_a_process(server):
    test_a_process.kept = subprocess.Popen(["sleep", "700"])

def test_the_next_after_a_process(server):
    test_a_process.kept.kill()
    test_a_process.kept.wait()

def test_a_thread():
    test_a_thread.kept = threading.Event()
    threading.Thread(target=test_a_thread.kept.wait, name="waiting").start()

def test_the_next_after_a_thread():
    test_a_thread.kept.set()

def test_a_file():
    cycle = Cycle()
    cycle.itself, cycle.file = cycle, open(__file__)

def test_the_next_after_a_file():
    pass

def test_a_thread_that_ends_later():
    threading.Thread(target=threading.Event().wait, args=(0.05,)).start()
"""
PROGRAM: Final = """
import json, sys
import pytest
import tests.leaks

class Reports:
    failed = {}
    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed[report.head_line] = report.longreprtext

tests.leaks.WAIT_S = 5.0
pytest.main(
    ["-q", "-c", "pyproject.toml", "-p", "no:cacheprovider", "-p", "no:xdist", sys.argv[1]],
    plugins=[tests.leaks.Leaks(), Reports()],
)
print("RESULT", json.dumps(Reports.failed))
"""


def test_what_a_test_leaves_is_its_own_error(tmp_path: Path) -> None:
    sample = tmp_path / "test_sample.py"
    sample.write_text(SAMPLE)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(sample)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    failed = json.loads(done.stdout.partition("RESULT")[2])
    assert list(failed) == ["test_a_process", "test_a_thread", "test_a_file"], done.stdout
    texts = [failed[name].partition("left behind: ")[2] for name in failed]
    assert texts[0].startswith("process ")
    assert texts[1] == "thread waiting"
    assert texts[2].startswith("unclosed file")
