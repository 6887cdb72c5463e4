"""Description of the machine of a comparison, so that its figures can be judged.

Leaves out what the system does not report.
"""

import os
import platform
from pathlib import Path


def describe() -> dict[str, str]:
    """Return facts by name."""
    facts = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": str(os.cpu_count() or "unknown"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    if hasattr(os, "getloadavg"):
        facts["load average at the start"] = " ".join(f"{each:.2f}" for each in os.getloadavg())
    return facts


def processor() -> str:
    """Return the model of the processor, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
