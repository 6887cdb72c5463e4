"""The compose file as values, as Docker reads it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.commands import DEPLOY

FILE: Final = DEPLOY / "compose" / "compose.yaml"
ONCE: Final = ("setup", "cluster", "operator")
"""Services that end when their command is done."""
SERVERS: Final = ("zookeeper", "bookie", "broker", "console", "repair", *ONCE)
"""First parts of the names of services that run Quire."""
_VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")


def services(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the services by name, with variables or their defaults in place."""
    text = _VARIABLE.sub(lambda each: variables.get(each[1], each[2]), FILE.read_text())
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return found


def servers() -> dict[str, dict[str, Any]]:
    """Return the services that run Quire."""
    return {name: each for name, each in services({}).items() if name.partition("-")[0] in SERVERS}


def tls_directory(service: Mapping[str, Any]) -> str | None:
    """Return the directory of the volume `tls` that a service has: empty for all of it, None if it
    has nothing of it.
    """
    for mount in service["volumes"]:
        if isinstance(mount, str) and mount.startswith("tls:"):
            return ""
        if isinstance(mount, dict) and mount["source"] == "tls":
            return str(mount["volume"]["subpath"])
    return None


def mounted_file(service: Mapping[str, Any], target: str) -> Path:
    """Return the file of the repository that is mounted at a path of a container."""
    for mount in service["volumes"]:
        source, _, rest = mount.partition(":") if isinstance(mount, str) else ("", "", "")
        if rest.partition(":")[0] == target:
            return (FILE.parent / source).resolve()
    raise AssertionError(f"nothing is mounted at {target}")
