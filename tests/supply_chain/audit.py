"""`make audit`: look for known vulnerabilities of the packages in deploy/requirements.lock.

Leaves the look-up to pip-audit, and its installation to the Makefile.

Format: status 0 if no package has a known vulnerability, 1 if one has, and UNCHECKED if a package
could not be checked. pip-audit itself succeeds when its service does not know a package, which is
what happens behind an index that does not pass on the service's answers: it would call that "no
known vulnerabilities". So its JSON is read, and each package of the lock file must be in it.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name

from tests.supply_chain.lock_file import LockedPackage, parse_lock

LOCK: Final = Path(__file__).parents[2] / "deploy" / "requirements.lock"
CLEAN, VULNERABLE, UNCHECKED = 0, 1, 3
SERVICES: Final = ("pypi", "osv")
"""Services to ask, in order; the next one only if one did not know each package."""
SERVICE_S_MAX: Final = 25
REASON_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Report:
    """What one service said."""

    service: str
    vulnerabilities: tuple[str, ...] = ()
    """Package, version and identifier of each."""
    unchecked: tuple[str, ...] = ()
    """Packages of which the service knows nothing."""
    reason: str = ""
    """Why they are unchecked."""


def read_report(service: str, packages: Sequence[LockedPackage], text: str, errors: str) -> Report:
    """Read the output of pip-audit: JSON on standard output, or an error on the other."""
    names = [package.name for package in packages]
    try:
        entries = json.loads(text)["dependencies"]
    except (ValueError, KeyError, TypeError):
        lines = errors.strip().splitlines() or ["pip-audit printed nothing"]
        return Report(service, unchecked=tuple(names), reason=lines[-1][:REASON_CHARACTERS_MAX])
    found: list[str] = []
    checked: set[str] = set()
    reason = "the report leaves them out"
    for entry in entries:
        if "skip_reason" in entry:
            reason = str(entry["skip_reason"])[:REASON_CHARACTERS_MAX]
            continue
        checked.add(canonicalize_name(entry["name"]))
        found += [_described(entry, each) for each in entry["vulns"]]
    missing = tuple(name for name in names if name not in checked)
    return Report(service, tuple(found), missing, reason if missing else "")


def status_of(reports: Sequence[Report]) -> int:
    """Return the status for the reports of all services that were asked."""
    if any(report.vulnerabilities for report in reports):
        return VULNERABLE
    return CLEAN if any(not report.unchecked for report in reports) else UNCHECKED


def audit(tool: str, lock: Path) -> list[Report]:
    """Ask the services until one knows each package."""
    packages = parse_lock(lock.read_text())
    reports = list[Report]()
    for service in SERVICES:
        reports.append(_ask(tool, lock, service, packages))
        if not reports[-1].unchecked:
            break
    return reports


def main(words: Sequence[str] | None = None) -> int:
    """Print what is known; return the status."""
    parser = argparse.ArgumentParser(prog="python -m tests.supply_chain.audit")
    parser.add_argument("--tool", default="pip-audit", help="the program pip-audit")
    parser.add_argument("--lock", type=Path, default=LOCK, help="the lock file")
    parser.add_argument(
        "--status-if-unchecked", type=int, default=UNCHECKED, help="0: succeed without an answer"
    )
    arguments = parser.parse_args(words)
    reports = audit(arguments.tool, arguments.lock)
    for report in reports:
        sys.stdout.write("".join(f"{vulnerability}\n" for vulnerability in report.vulnerabilities))
        if report.unchecked:
            count = len(report.unchecked)
            sys.stdout.write(
                f"NOT CHECKED by {report.service}: {count} packages ({report.reason})\n"
            )
    status = status_of(reports)
    if status == CLEAN:
        sys.stdout.write("no known vulnerability in deploy/requirements.lock\n")
    return int(arguments.status_if_unchecked) if status == UNCHECKED else status


def _ask(tool: str, lock: Path, service: str, packages: Sequence[LockedPackage]) -> Report:
    words = [tool, "--requirement", str(lock), "--require-hashes", "--disable-pip"]
    words += ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off"]
    names = tuple(package.name for package in packages)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=SERVICE_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return Report(service, unchecked=names, reason=f"no answer in {SERVICE_S_MAX} s")
    except OSError as error:
        text = f"{tool} does not run ({error.strerror}): make audit installs it"
        return Report(service, unchecked=names, reason=text)
    return read_report(service, packages, done.stdout, done.stderr)


def _described(entry: Mapping[str, Any], vulnerability: Mapping[str, Any]) -> str:
    fixed = ", ".join(vulnerability.get("fix_versions", ())) or "no release"
    return f"{entry['name']} {entry['version']}: {vulnerability['id']}, fixed in {fixed}"


if __name__ == "__main__":
    sys.exit(main())
