"""The image: its Dockerfile is free of known faults, its context is complete, and its health check
asks a real server.
"""

import asyncio
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from prometheus_client import Metric
from prometheus_client.registry import Collector

from quire.identity.tls import ClientCertificates, ServerTls, TlsFiles
from quire.local.secure_directory import SecureDirectory
from quire.server.admin import AdminAccess, AdminContent, AdminServer
from quire.server.overriding import override
from quire.server.server_log import ServerLog
from tests.deploy.commands import DEPLOY, ROOT
from tests.deploy.dockerfile import FILE, context_files, instructions
from tests.supply_chain.lock_file import parse_lock

HEALTH = DEPLOY / "docker" / "health.py"
USER = "10001:10001"
IMAGES = ("quire", "quire-zookeeper")


class NoMetrics(Collector):
    @override
    def collect(self) -> Iterator[Metric]:
        return iter(())


def test_hadolint_finds_no_fault() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_server_has_no_rights_of_root_and_stops_in_order() -> None:
    found = {
        instruction.name: instruction.text
        for instruction in instructions()
        if instruction.stage == "server"
    }
    assert (found["USER"], found["STOPSIGNAL"]) == (USER, "SIGTERM")
    assert "org.opencontainers.image.licenses=" in found["LABEL"]
    targets = [
        instruction.stage for instruction in instructions() if instruction.name == "HEALTHCHECK"
    ]
    assert targets == ["zookeeper", "quire"], "each image, and `quire` is the last one"


def test_the_image_the_chart_and_the_compose_file_have_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nARG VERSION={version}\n" in FILE.read_text()
    assert f"\nappVersion: {version}\n" in (DEPLOY / "helm" / "quire" / "Chart.yaml").read_text()
    assert (DEPLOY / "compose" / "compose.yaml").read_text().count(f":{version}}}") == len(IMAGES)


def test_the_context_has_what_the_wheel_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = set(map(str, context_files()))
    assert {file.partition("/")[0] for file in files} >= {*packages, "pyproject.toml", "LICENSE"}
    for instruction in instructions():
        if instruction.name == "COPY" and not instruction.text.startswith(("--from", ".")):
            assert set(instruction.text.split()[:-1]) <= files
    assert not [file for file in files if file.startswith(("tests/", ".git/"))]


def test_the_tool_that_builds_the_wheel_is_locked() -> None:
    locked = {
        package.name: package
        for package in parse_lock((DEPLOY / "docker" / "build.lock").read_text())
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for text in project["build-system"]["requires"]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(locked[wanted.name].version), "run make lock"


async def check_health(url: str) -> tuple[int, str]:
    """Run the health check of the image; return its status and what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HEALTH),
        env={**os.environ, "QUIRE_HEALTH_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


@pytest.mark.parametrize("is_tls", [True, False])
async def test_the_health_check_says_whether_the_server_is_ready(
    tmp_path: Path,
    is_tls: bool,
) -> None:
    context = None
    if is_tls:
        directory = SecureDirectory(tmp_path)
        directory.fill()
        files = TlsFiles(*directory.certificate_options("bookie").values())
        context = ServerTls(files, ClientCertificates.NONE).following_context(
            ClientCertificates.REQUESTED
        )
    missing: list[str | None] = [None]
    access = AdminAccess("secret", context)
    content = AdminContent("thing", NoMetrics(), lambda: missing[0], (), access=access)
    server = AdminServer(content, ServerLog(asyncio.get_running_loop().time))
    host, port = await server.start("127.0.0.1", 0)
    url = f"{'https' if is_tls else 'http'}://{host}:{port}/readyz"
    try:
        assert await check_health(url) == (0, '{"status": "ready"}')
        missing[0] = "the disk"
        status, printed = await check_health(url)
        assert status == 1
        assert "the disk" in printed
    finally:
        await server.close()
    status, printed = await check_health(url)
    assert status == 1
    assert f"{url} does not answer" in printed
