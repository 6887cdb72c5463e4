"""The compose file's cluster as processes: secured, with its commands, configuration and health
checks. Docker's part (images, networks, volumes) is left out.
"""

import json
import os
import shutil
import ssl
import urllib.request
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from quire.identity.secret_files import read_secret
from tests.deploy.compose_file import mounted_file, services, tls_directory
from tests.support.deploy.running_compose import TLS, RunningCompose

LINES = "one\ntwo\n"

pytestmark = [pytest.mark.long, pytest.mark.timeout(2_000)]


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCompose]:
    running = RunningCompose(tmp_path_factory.mktemp("compose"), Random(os.urandom(16)))
    try:
        running.start_all()
        yield running
    finally:
        statuses = running.stop_all()
    assert set(statuses.values()) == {0}, "each server stops in order"


def operator(compose: RunningCompose, *words: str, stdin: str = "") -> str:
    done = compose.run("operator", *words, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(compose: RunningCompose, *words: str, stdin: str = "") -> Any:
    return json.loads(operator(compose, *words, "-o", "json", stdin=stdin))


def test_the_cluster_is_healthy_and_its_one_machine_is_noticed(compose: RunningCompose) -> None:
    shown = as_json(compose, "cluster", "health")
    assert shown["findings"] == []
    assert "host" in json.dumps(shown["warnings"])
    bookies = as_json(compose, "bookie", "list")
    assert [bookie["host"] for bookie in bookies] == ["one-machine"] * 4
    assert "auditor" in operator(compose, "repair", "status")


def test_entries_and_records_are_written_and_read(compose: RunningCompose) -> None:
    appended = as_json(compose, "ledger", "append", stdin=LINES)
    assert operator(compose, "ledger", "read", str(appended["ledger_id"])) == LINES
    operator(compose, "topic", "create", "orders", "--partitions", "2")
    operator(compose, "topic", "produce", "orders", "--partition", "1", stdin=LINES)
    consumed = operator(compose, "topic", "consume", "orders", "--partition", "1")
    assert consumed == LINES


def test_prometheus_reads_each_target_with_the_token_alone(compose: RunningCompose) -> None:
    prometheus = services({})["prometheus"]
    settings = mounted_file(prometheus, "/etc/prometheus/prometheus.yaml").read_text()
    directory = tls_directory(prometheus)
    assert directory is not None
    settings = settings.replace(TLS, str(compose.tls / directory))
    (job,) = yaml.safe_load(settings)["scrape_configs"]
    trusting = ssl.create_default_context(cafile=job["tls_config"]["ca_file"])
    token = read_secret(job["authorization"]["credentials_file"])
    for target in job["static_configs"][0]["targets"]:
        name, _, port = target.partition(":")
        request = urllib.request.Request(f"https://{compose.addresses[name]}:{port}/metrics")
        if name != "console":  # which asks for a login instead
            with pytest.raises(HTTPError, match="401"):
                urllib.request.urlopen(request, context=trusting)
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, context=trusting) as answer:
            assert b"\nquire_" in answer.read()


def test_a_bookie_comes_back_with_its_id(compose: RunningCompose) -> None:
    before = as_json(compose, "bookie", "list")
    compose.kill("bookie-2")
    compose.start("bookie-2")
    compose.wait_until_healthy("bookie-2")
    after = as_json(compose, "bookie", "list")
    assert [each["id"] for each in after] == [each["id"] for each in before]


def test_a_bookie_that_lost_files_is_not_formatted(compose: RunningCompose) -> None:
    compose.kill("bookie-4")
    for directory in ("log", "index"):
        shutil.rmtree(compose.data_of("bookie-4") / "bookie" / directory)
    compose.start("bookie-4")
    assert compose.wait_until_ended("bookie-4") != 0
    assert len(as_json(compose, "bookie", "list")) == 4
