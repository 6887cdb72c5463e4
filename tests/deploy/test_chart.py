"""The chart: its golden renders follow Kubernetes's schemas, their commands and configuration are
Quire's, and Helm renders them from the templates.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from quire.local.secure_directory import SERVER_ROLES
from tests.deploy.commands import ROOT, assert_valid_configuration, parse_command
from tests.deploy.rendering import CHART, HERE, KUBERNETES, SETS, golden_file, helm, render

WITHOUT_SCHEMA = {"Certificate", "PrometheusRule", "ServiceMonitor"}
"""Kinds of cert-manager and of Prometheus's operator, whose schemas Kubernetes does not have."""
QUIRE_FIRST = "1.28"
"""The oldest release of Kubernetes that the chart takes."""

Resource = dict[str, Any]


def resources(name: str) -> list[Resource]:
    return [each for each in yaml.safe_load_all(golden_file(name).read_text()) if each]


def pods(name: str) -> Iterator[tuple[str, Resource]]:
    """Yield the name and the specification of each pod."""
    for resource in resources(name):
        if resource["kind"] == "Pod":
            yield resource["metadata"]["name"], resource["spec"]
        elif resource["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield resource["metadata"]["name"], resource["spec"]["template"]["spec"]


def configuration(name: str) -> dict[str, str]:
    (found,) = [resource for resource in resources(name) if resource["kind"] == "ConfigMap"]
    data: dict[str, str] = found["data"]
    return data


def environment(container: Resource, node: str = "node-7") -> dict[str, str]:
    """Return a container's variables as Kubernetes gives them to pod 1 of its set."""
    known = {
        "metadata.name": "pod-1",
        "metadata.labels['apps.kubernetes.io/pod-index']": "1",
        "metadata.labels['topology.kubernetes.io/zone']": "zone-a",
        "spec.nodeName": node,
        "status.podIP": "10.0.0.7",
    }
    values: dict[str, str] = {}
    for each in container.get("env", ()):
        if "value" in each:
            values[each["name"]] = re.sub(r"\$\((\w+)\)", lambda m: values[m[1]], each["value"])
        else:
            values[each["name"]] = known[each["valueFrom"]["fieldRef"]["fieldPath"]]
    return values


@pytest.mark.parametrize("version", [QUIRE_FIRST, KUBERNETES])
@pytest.mark.parametrize("name", SETS)
def test_kubernetes_accepts_it(name: str, version: str) -> None:
    found = resources(name)
    assert len(found) > len(SETS)
    for each in found:
        if each["kind"] not in WITHOUT_SCHEMA:
            kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("name", SETS)
def test_each_command_exists_and_has_a_valid_configuration(name: str, tmp_path: Path) -> None:
    files = configuration(name)
    for pod, spec in pods(name):
        (container,) = spec["containers"]
        arguments = parse_command(container["args"])
        mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
        if "config" in arguments and container["args"][0] != "repair":  # its options are flags
            path = tmp_path / f"{pod}.toml"
            path.write_text(files[mounts[arguments.config]["subPath"]])
            assert_valid_configuration(path, environment(container))
        for mount in mounts.values():
            (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]] or [{}]
            assert "subPath" not in mount or mount["subPath"] in files
            assert volume or mount["name"] == "data"


@pytest.mark.parametrize("name", SETS)
def test_each_pod_is_confined(name: str) -> None:
    for _, spec in pods(name):
        assert not spec["enableServiceLinks"], "QUIRE_CONSOLE_PORT would be an option"
        assert not spec["automountServiceAccountToken"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        for volume in spec["volumes"]:
            # quire.identity.secret_files refuses a secret that others than root and a group may
            # use.
            assert volume.get("secret", {}).get("defaultMode", 0o440) == 0o440


def test_copies_are_kept_apart_by_the_name_of_the_node() -> None:
    for name, rack in (("default", "/default/default"), ("everything", "/eu/zone-a")):
        for pod, spec in pods(name):
            if pod.endswith("-bookie"):
                found = environment(spec["containers"][0], node="node-7.example")
                assert found["QUIRE_BOOKIE_LOCATION"] == f"{rack}/node-7.example"


@pytest.mark.parametrize("name", SETS)
def test_what_holds_data_is_kept_and_is_disrupted_one_at_a_time(name: str) -> None:
    found = resources(name)
    sets = [each for each in found if each["kind"] == "StatefulSet"]
    budgets = {
        each["metadata"]["name"]: each["spec"]
        for each in found
        if each["kind"] == "PodDisruptionBudget"
    }
    for each in sets:
        assert budgets[each["metadata"]["name"]]["maxUnavailable"] == 1
        if "volumeClaimTemplates" in each["spec"]:
            kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
            assert each["spec"]["persistentVolumeClaimRetentionPolicy"] == kept


def test_monitors_find_the_ports_and_the_token() -> None:
    found = resources("everything")
    monitors = [each for each in found if each["kind"] == "ServiceMonitor"]
    assert len(monitors) == len({"bookie", "broker", "console"} & set(SERVER_ROLES))
    services = [each for each in found if each["kind"] == "Service"]
    for monitor in monitors:
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (endpoint,) = monitor["spec"]["endpoints"]
        scraped = [
            service
            for service in services
            if wanted <= service["metadata"]["labels"].items()
            and endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
        ]
        assert len(scraped) == 1
        assert endpoint["authorization"]["credentials"]["key"] == "token"
    (rule,) = [each for each in found if each["kind"] == "PrometheusRule"]
    groups = [
        group
        for file in ("rules.yaml", "alerts.yaml")
        for group in yaml.safe_load((ROOT / "monitoring" / file).read_text())["groups"]
    ]
    assert rule["spec"]["groups"] == groups


def schema() -> Resource:
    found: Resource = json.loads((CHART / "values.schema.json").read_text())
    return found


def test_the_values_are_described_and_valid() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    for path in (CHART / "values.yaml", *(HERE / "values").glob("*.yaml")):
        jsonschema.validate(yaml.safe_load(path.read_text()) or {}, schema())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) | {"global"} == set(schema()["properties"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"zookeeper": {"replicas": 2}},
        {"bookie": {"rack": "a/b"}},
        {"bookie": {"option": {}}},
        {"tls": {"superUsers": ["alice"]}},
        {"metadata": {"servers": ["zk1.example"]}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(wrong: Resource) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema())


def program() -> str:
    found = helm()
    if found is None:
        pytest.skip("Helm is not installed: go install helm.sh/helm/v3/cmd/helm@v3.22.0")
    return found


@pytest.mark.parametrize("name", SETS)
def test_helm_renders_the_golden_files(name: str) -> None:
    done = render(program(), name)
    assert done.returncode == 0, done.stderr
    assert done.stdout == golden_file(name).read_text(), "run python -m tests.deploy.rendering"


def test_helm_finds_no_fault() -> None:
    done = subprocess.run(
        [program(), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_helm_says_what_is_missing() -> None:
    done = render(program(), "small", "--set", "metadata.servers=null")
    assert "name the ZooKeeper servers, as host:port" in done.stderr
    done = render(program(), "default", "--set", "broker.external.enabled=true")
    assert "broker.external.domain is needed" in done.stderr
