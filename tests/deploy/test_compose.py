"""The compose file: its schema, its commands, its configuration, and what monitors it."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from bookie.options import BOOKIE
from quire.local.secure_directory import SecureDirectory
from tests.deploy.commands import DEPLOY, ROOT, assert_valid_configuration, parse_command
from tests.deploy.compose_file import FILE, mounted_file, servers, services, tls_directory

CONFIGURATION = FILE.parent / "quire.toml"


def test_it_follows_the_specification() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", FILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_the_servers_of_a_cluster() -> None:
    kinds = [name.rpartition("-")[0] or name for name in services({})]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "setup": 1,
        "zookeeper": 3,
        "cluster": 1,
        "bookie": 4,
        "broker": 2,
        "repair": 1,
        "console": 1,
        "operator": 1,
        "prometheus": 1,
        "grafana": 1,
    }


@pytest.mark.parametrize("name", servers())
def test_each_command_exists(name: str) -> None:
    service = servers()[name]
    arguments = parse_command(service["command"])
    if "config" in arguments and name != "repair":  # which needs no other option than metadata
        assert mounted_file(service, arguments.config) == CONFIGURATION
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]


def test_the_configuration_is_valid_with_what_the_commands_add() -> None:
    found = servers()
    bookie, broker, zookeeper = (
        parse_command(found[name]["command"]) for name in ("bookie-1", "broker-1", "zookeeper-1")
    )
    variables = {
        "QUIRE_BOOKIE_ADVERTISED_HOST": bookie.advertised_host,
        "QUIRE_BROKER_ADVERTISED_LISTENERS": broker.advertised_listeners,
        "QUIRE_ZOOKEEPER_ID": str(zookeeper.id),
    }
    assert_valid_configuration(CONFIGURATION, variables)


def test_copies_are_kept_apart_by_the_name_of_the_machine() -> None:
    for node in ("", "machine-7"):
        for name, service in services({"QUIRE_NODE": node} if node else {}).items():
            if name.startswith("bookie-"):
                arguments = parse_command(service["command"])
                flags = {"location": arguments.location, "advertised_host": name}
                options = BOOKIE.load(CONFIGURATION.read_text(), {}, flags)
                assert options.location == f"/compose/default/{node or 'one-machine'}"
                assert arguments.advertised_host == name


def test_certificates_have_the_names_of_all_servers() -> None:
    names = parse_command(servers()["setup"]["command"]).host
    addressed = {name for name in servers() if name.startswith(("bookie-", "broker-", "console"))}
    assert set(names) == addressed


def test_each_service_has_its_own_keys_alone(tmp_path: Path) -> None:
    found = services({})
    arguments = parse_command(found["setup"]["command"])
    directory = SecureDirectory(tmp_path)
    directory.fill(arguments.host)
    directory.fill_admin_token()
    assert arguments.admin_token
    assert arguments.split
    directory.split()
    assert tls_directory(found["setup"]) == ""
    owners = {"repair": "bookie", "operator": "client", "cluster": "client", "prometheus": ""}
    for name, service in found.items():
        if name == "setup" or not any("tls" in str(each) for each in service.get("volumes", ())):
            continue
        kind = name.rpartition("-")[0] or name
        own = owners.get(kind, kind)
        part = tls_directory(service)
        assert part is not None
        mounted = tmp_path / part
        keys = {path.name for path in mounted.glob("*key*")}
        assert keys <= {f"{own}-key.pem", f"{own}-keystore.pem"}, name
        assert bool(keys) == bool(own), name
        text = json.dumps(tomllib.loads(CONFIGURATION.read_text()).get(kind, {}))
        text += str(service.get("command")) + str(service.get("environment"))
        for file in re.findall(r"/etc/quire/tls/([\w.-]+)", text):
            assert (mounted / file).is_file(), f"{name} has {file}"


def test_prometheus_scrapes_each_admin_port_with_the_token() -> None:
    prometheus = services({})["prometheus"]
    text = mounted_file(prometheus, "/etc/prometheus/prometheus.yaml").read_text()
    document = yaml.safe_load(text)
    (job,) = document["scrape_configs"]
    options = tomllib.loads(CONFIGURATION.read_text())
    ports = {"bookie": options["bookie"]["admin_port"], "broker": options["broker"]["admin_port"]}
    ports["console"] = options["console"]["port"]
    wanted = {
        f"{name}:{ports[name.partition('-')[0]]}"
        for name in servers()
        if name.partition("-")[0] in ports
    }
    assert set(job["static_configs"][0]["targets"]) == wanted
    token = options["bookie"]["admin_token_file"]
    assert job["authorization"]["credentials_file"] == token
    assert job["tls_config"]["ca_file"] == options["bookie"]["tls_ca_file"]
    for name in document["rule_files"]:
        assert mounted_file(prometheus, f"/etc/prometheus/{name}").is_file()


def test_grafana_shows_the_dashboards() -> None:
    grafana = services({})["grafana"]
    provisioning = "/etc/grafana/provisioning"
    source = mounted_file(grafana, f"{provisioning}/datasources/quire.yaml")
    (prometheus,) = yaml.safe_load(source.read_text())["datasources"]
    assert prometheus["url"] == "http://prometheus:9090"
    boards = mounted_file(grafana, f"{provisioning}/dashboards/quire.yaml")
    (provider,) = yaml.safe_load(boards.read_text())["providers"]
    directory = mounted_file(grafana, provider["options"]["path"])
    assert directory == ROOT / "monitoring" / "dashboards"
    assert all(json.loads(path.read_text())["uid"] for path in directory.glob("*.json"))


def test_only_this_machine_reaches_the_published_ports() -> None:
    ports = [port for service in services({}).values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    networks = yaml.safe_load(FILE.read_text())["networks"]
    assert networks["metadata"]["internal"], "ZooKeeper is without TLS"
    assert (DEPLOY / "docker" / "Dockerfile").is_file()
