"""The chart as Helm renders it for three sets of values: `python -m tests.deploy.rendering` writes
the golden files again.

Leaves their checks to `test_chart`.

Format: `values/NAME.yaml` has the values, `golden/NAME.yaml` what Helm 3.22 makes of them.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.deploy.commands import DEPLOY

CHART: Final = DEPLOY / "helm" / "quire"
HERE: Final = Path(__file__).parent
SETS: Final = ("default", "everything", "small")
NAMESPACE: Final = "quire"
KUBERNETES: Final = "1.34"
"""The release of Kubernetes for which the chart is rendered, and whose schemas it must follow."""


def golden_file(name: str) -> Path:
    """Return the file with what was rendered for a set of values."""
    return HERE / "golden" / f"{name}.yaml"


def helm() -> str | None:
    """Return the path of Helm; None if it is not installed."""
    return shutil.which("helm")


def render(program: str, name: str, *more: str) -> "subprocess.CompletedProcess[str]":
    """Render the chart for a set of values; `more` are further arguments of `helm template`."""
    values = str(HERE / "values" / f"{name}.yaml")
    words = ["template", "quire", str(CHART), "--namespace", NAMESPACE, "--values", values, *more]
    return subprocess.run(
        [program, *words, "--kube-version", KUBERNETES],
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    """Write the golden files again."""
    program = helm()
    if program is None:
        sys.stderr.write(
            "Helm is not installed: go install helm.sh/helm/v3/cmd/helm@v3.22.0, with its directory"
            " on PATH\n"
        )
        return 1
    for name in SETS:
        done = render(program, name)
        if done.returncode:
            sys.stderr.write(done.stderr)
            return 1
        golden_file(name).write_text(done.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
