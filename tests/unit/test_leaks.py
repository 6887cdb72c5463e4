"""A test that leaves something behind fails, and no other does."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = """
import os, signal, socket, subprocess, sys, tempfile, threading
import pytest
from tests.support.quire.forks.forking import ForkedCommand

class Cycle:
    pass

@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()

@pytest.fixture(scope="module")
def wide():
    os.environ["WIDE"] = "1"
    with open(__file__):
        yield
    del os.environ["WIDE"]

def test_a_process(server, wide):
    test_a_process.kept = subprocess.Popen(["sleep", "700"])

def test_the_next_after_a_process(wide):
    test_a_process.kept.kill()
    test_a_process.kept.wait()

@pytest.fixture(scope="module")
def servers():
    started = [subprocess.Popen(["sleep", "900"]) for _ in range(2)]
    yield started
    for each in started:
        each.kill()
        each.wait()

def test_that_ends_servers(servers):
    for each in servers:
        each.kill()
        each.wait()

def test_that_starts_one_again(servers):
    servers[0] = subprocess.Popen(["sleep", "900"])

def test_that_starts_one_too_many(servers):
    servers[1] = subprocess.Popen(["sleep", "900"])
    test_that_starts_one_too_many.kept = subprocess.Popen(["sleep", "901"])

def test_the_next_after_one_too_many():
    test_that_starts_one_too_many.kept.kill()
    test_that_starts_one_too_many.kept.wait()

def test_a_daemon():
    program = (
        "import subprocess as s;"
        "own = {'stdout': s.DEVNULL, 'stderr': s.DEVNULL, 'start_new_session': True};"
        "print(s.Popen(['sleep', '800'], **own).pid)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    test_a_daemon.kept = int(done.stdout)

def test_the_next_after_a_daemon():
    os.kill(test_a_daemon.kept, signal.SIGKILL)

def test_two_forked_commands():
    words = ["ledger", "append", "--metadata", "zk://127.0.0.1:1/quire"]
    test_two_forked_commands.kept = [ForkedCommand(words, dict(os.environ)) for _ in range(2)]

def test_the_next_after_forked_commands():
    for each in test_two_forked_commands.kept:
        each.kill()
        each.communicate()

def test_a_thread():
    test_a_thread.kept = threading.Event()
    threading.Thread(target=test_a_thread.kept.wait, name="waiting").start()

def test_the_next_after_a_thread():
    test_a_thread.kept.set()

def test_a_thread_with_the_name_of_a_loops():
    test_a_thread.kept = threading.Event()
    threading.Thread(target=test_a_thread.kept.wait, name="asyncio_9").start()

def test_the_next_after_a_thread_with_a_name():
    test_a_thread.kept.set()

def test_a_file():
    cycle = Cycle()
    cycle.itself, cycle.file = cycle, open(__file__)

def test_the_next_after_a_file():
    pass

def test_a_file_that_is_reachable():
    test_a_file_that_is_reachable.kept = open(__file__)

def test_the_next_after_a_reachable_file():
    test_a_file_that_is_reachable.kept.close()

def test_a_socket_instead_of_a_file(wide):
    test_a_socket_instead_of_a_file.kept = socket.socket()

def test_the_next_after_a_socket():
    test_a_socket_instead_of_a_file.kept.close()

def test_that_fails_with_a_socket():
    try:
        kept = socket.create_server(("127.0.0.1", 0))
        assert kept is None
    except AssertionError as error:
        raise ExceptionGroup("of the test", [error])

def test_the_next_after_a_failed_one():
    import gc
    gc.collect()

def test_a_variable():
    os.environ["LEFT"] = "1"

def test_a_umask():
    os.umask(0o077)

def test_a_directory():
    os.chdir(tempfile.gettempdir())

def test_a_signal_handler():
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

def test_a_thread_that_ends_later():
    threading.Thread(target=threading.Event().wait, args=(0.05,)).start()

def test_what_is_put_back(monkeypatch, tmp_path):
    monkeypatch.setenv("LEFT", "1")
    monkeypatch.chdir(tmp_path)

@pytest.fixture(scope="session")
def later():
    os.environ["LATER"] = "1"
    with open(__file__), socket.socket():
        yield
    del os.environ["LATER"]

def test_what_a_wider_fixture_opens_during_a_test(request):
    request.getfixturevalue("later")

@pytest.mark.asyncio(loop_scope="session")
async def test_a_connection_that_a_wider_loop_keeps():
    import asyncio
    await asyncio.to_thread(len, "")
    test_a_connection_that_a_wider_loop_keeps.kept = socket.socket()

@pytest.mark.asyncio(loop_scope="session")
async def test_a_file_while_a_wider_loop_runs():
    test_a_file_while_a_wider_loop_runs.kept = open(__file__)

def test_the_last():
    test_a_file_while_a_wider_loop_runs.kept.close()
    test_a_connection_that_a_wider_loop_keeps.kept.close()

async def test_a_loop_and_its_threads():
    import asyncio
    await asyncio.to_thread(len, "")
"""
FOUND: Final = {
    "test_a_process": r"process \d+ \(sleep 700\)",
    "test_that_starts_one_too_many": r"process \d+ \(sleep 90.\), process \d+ \(sleep 90.\)",
    "test_a_daemon": r"process \d+ \(sleep 800\)",
    "test_two_forked_commands": r"process \d+ .*, process \d+ .*(, descriptor \d+ \(\w+:.*){8}",
    "test_a_thread": "thread waiting",
    "test_a_thread_with_the_name_of_a_loops": "thread asyncio_9",
    "test_a_file": "unclosed file .*",
    "test_a_file_that_is_reachable": r"descriptor \d+ \(.*test_sample.py\)",
    "test_a_socket_instead_of_a_file": r"descriptor \d+ \(socket:.*\)",
    "test_that_fails_with_a_socket": r"unclosed <socket.*>",
    "test_a_variable": "changed variable LEFT",
    "test_a_umask": "changed umask",
    "test_a_directory": "changed working directory",
    "test_a_signal_handler": "changed handler of SIGUSR1",
    "test_a_file_while_a_wider_loop_runs": r"descriptor \d+ \(.*test_sample.py\)",
}
PROGRAM: Final = """
import json, sys
import pytest
import tests.leaks

class Reports:
    failed = {}
    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed[report.head_line] = report.longreprtext

tests.leaks.WAIT_S = 0.5
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
    texts = {name: text.partition("left behind: ")[2] for name, text in failed.items()}
    assert list(texts) == list(FOUND), done.stdout
    for name, expected in FOUND.items():
        assert re.fullmatch(expected, texts[name].rstrip()), (name, texts[name])
