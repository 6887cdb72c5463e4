"""The servers of the compose file as processes of this machine, with its commands and its files.

Leaves reading the compose file to `tests.deploy.compose_file`, and checks to the tests.

Format: each container becomes a loopback address of its own, 127.a.b.N with a and b at random, so
that all ports stay as they are. Its volumes are below `directory`.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.deploy.commands import DEPLOY
from tests.deploy.compose_file import mounted_file, servers, tls_directory

START_S_MAX: Final = 400.0
COMMAND_S_MAX: Final = 200.0
STOP_S_MAX: Final = 200.0
POLL_S: Final = 1.0
QUIRE: Final = (sys.executable, "-m", "quire.cli.main")
CONFIGURATION: Final = "/etc/quire/quire.toml"
TLS: Final = "/etc/quire/tls"
DATA: Final = "/var/lib/quire"
ADMIN_URL: Final = "https://127.0.0.1:8080/readyz"
_NAME: Final = re.compile(r"\b(?:zookeeper|bookie|broker)-\d\b|(?<=--host=)console\b")
_PUBLISHED: Final = re.compile(r"\blocalhost:[12](\d{4})\b")


class RunningCompose:
    """The services that run Quire. Call `start_all`, and `stop_all` in any case."""

    def __init__(self, directory: Path, rng: Random) -> None:
        self._directory = directory
        self._services = servers()
        prefix = f"127.{rng.randrange(1, 255)}.{rng.randrange(256)}"
        self.addresses = {
            name: f"{prefix}.{number}" for number, name in enumerate(self._services, start=1)
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.tls = directory / "tls"

    def start_all(self) -> None:
        """Start every server in the order of the file, each kind once the one before is ready."""
        for kind in ("setup", "zookeeper", "cluster", "bookie", "broker", "console", "repair"):
            if kind in ("setup", "cluster"):
                done = self.run(kind)
                assert done.returncode == 0, done.stderr
                continue
            names = [name for name in self._services if name.partition("-")[0] == kind]
            for name in names:
                self.start(name)
            for name in names:
                self.wait_until_healthy(name)

    def start(self, name: str) -> None:
        """Start a server whose process does not run."""
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*QUIRE, *self.command(name)], env=self._environment(name), stdout=log, stderr=log
            )

    def run(self, name: str, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run the command of a service, or other words in its place, to its end."""
        return subprocess.run(
            [*QUIRE, *(words or self.command(name))],
            env=self._environment(name),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )

    def wait_until_healthy(self, name: str) -> None:
        """Wait until the health check of the server's image succeeds."""
        deadline = time.monotonic() + START_S_MAX
        while not self._is_healthy(name):
            status = self._processes[name].poll()
            assert status is None, f"{name} ended with status {status}: {self.log(name)}"
            assert time.monotonic() < deadline, f"{name} is not healthy: {self.log(name)}"
            time.sleep(POLL_S)

    def wait_until_ended(self, name: str) -> int:
        """Return the status with which a server ends by itself."""
        return self._processes.pop(name).wait(START_S_MAX)

    def kill(self, name: str) -> None:
        """End a server at once."""
        self._processes[name].kill()
        self._processes[name].wait(STOP_S_MAX)

    def stop(self, name: str) -> int:
        """End a server as Docker does; return its status."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(STOP_S_MAX)

    def stop_all(self) -> dict[str, int]:
        """End all servers, those that use others first; return their statuses."""
        return {name: self.stop(name) for name in reversed(list(self._processes))}

    def command(self, name: str) -> list[str]:
        """Return the words of a service's command, for this machine."""
        return [self.localized(word, name) for word in self._services[name]["command"]]

    def localized(self, text: str, name: str) -> str:
        """Return a text of a service with this machine's addresses and paths."""
        text = _NAME.sub(lambda each: self.addresses[each[0]], text)
        text = _PUBLISHED.sub(rf"{self.addresses[name]}:\1", text)
        text = text.replace("0.0.0.0", self.addresses[name])
        text = text.replace(CONFIGURATION, str(self._configuration(name)))
        directory = tls_directory(self._services[name])
        if directory is not None:
            text = text.replace(TLS, str(self.tls / directory))
        return text.replace(DATA, str(self.data_of(name)))

    def data_of(self, name: str) -> Path:
        """Return the volume of a server."""
        return self._directory / name

    def log(self, name: str) -> str:
        """Return what a server wrote."""
        return (self._directory / f"{name}.log").read_text()

    def _configuration(self, name: str) -> Path:
        return self._directory / f"{name}.toml"

    def _environment(self, name: str) -> dict[str, str]:
        service: dict[str, Any] = self._services[name]
        if any(CONFIGURATION in str(word) for word in service["command"]):
            text = mounted_file(service, CONFIGURATION).read_text()
            self._configuration(name).write_text(self.localized(text, name))
        own = {key: self.localized(each, name) for key, each in self._own(name).items()}
        return {**{k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}, **own}

    def _own(self, name: str) -> dict[str, str]:
        own: dict[str, str] = self._services[name].get("environment", {})
        return own

    def _is_healthy(self, name: str) -> bool:
        service = self._services[name]
        if service.get("healthcheck", {}).get("disable"):
            return True
        if name.startswith("zookeeper-"):
            return (
                self.run(name, "zookeeper", "status", f"{self.addresses[name]}:2181").returncode
                == 0
            )
        url = self._own(name).get("QUIRE_HEALTH_URL", ADMIN_URL)
        done = subprocess.run(
            [sys.executable, DEPLOY / "docker" / "health.py"],
            env={**os.environ, "QUIRE_HEALTH_URL": url.replace("127.0.0.1", self.addresses[name])},
            capture_output=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        return done.returncode == 0
