"""The page from laptop to production: its files are valid, and its commands exist."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.deploy.commands import DEPLOY, ROOT, assert_valid_configuration, parse_command

PAGE = (ROOT / "docs" / "production.md").read_text()
FILES = dict(
    re.findall(r"`/etc/quire/([\w.-]+)`[^\n]*\n(?:[^\n]+\n)*\n```toml\n(.*?)```", PAGE, re.DOTALL)
)
BLOCKS = re.findall(r"```(?:console|text)\n(.*?)```", PAGE, re.DOTALL)
LINES = [line.removeprefix("$ ") for block in BLOCKS for line in block.splitlines()]
COMMANDS = [each[1] for line in LINES if (each := re.match(r"(?:sudo -u quire )?quire (.*)", line))]
INLINE = re.findall(r"`quire ([^`]+)`", PAGE)


def test_the_page_has_a_file_for_each_unit_that_it_starts() -> None:
    assert list(FILES) == [
        "zookeeper.toml",
        "bookie-disk1.toml",
        "broker.toml",
        "gateway.toml",
        "console.toml",
    ]
    for unit in ("quire-zookeeper", "quire-bookie@disk1", "quire-broker", "quire-gateway"):
        assert f"systemctl enable --now {unit}" in PAGE
        assert (DEPLOY / "systemd" / f"{unit.replace('disk1', '')}.service").exists()


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_valid(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    assert_valid_configuration(path, {})


@pytest.mark.parametrize("command", [*COMMANDS, *INLINE])
def test_a_command_exists(command: str) -> None:
    words = shlex.split(re.sub(r" [<>] \S+", "", command).replace(" ID", " 7"))
    assert parse_command(words)


def test_the_settings_are_those_of_the_compose_file_that_a_test_runs() -> None:
    """The integration test of the compose file shows that they work together."""
    shown = {name: tomllib.loads(text) for name, text in FILES.items()}
    tested = tomllib.loads((DEPLOY / "compose" / "quire.toml").read_text())
    secured = re.compile(
        r"tls(?!_client)|super_users|authorizer|admin_token|inter_broker|.*protocol_map"
    )
    for file in shown.values():
        for table, options in file.items():
            for name, value in options.items():
                if secured.match(name) and table != "gateway":  # the compose file has none
                    assert tested[table][name] == value, (table, name)


def test_prometheus_reads_every_machine_of_the_page() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (job,) = yaml.safe_load(text)["scrape_configs"]
    targets = {each.partition(":")[0] for each in job["static_configs"][0]["targets"]}
    (made,) = [line for line in LINES if line.startswith("quire tls init")]
    assert targets == set(re.findall(r"--host (\S+)", made))
