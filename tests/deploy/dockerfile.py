"""The Dockerfile's instructions, by the stage in which they are."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.deploy.commands import DEPLOY, ROOT

FILE: Final = DEPLOY / "docker" / "Dockerfile"
IGNORED: Final = ROOT / ".dockerignore"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, on one line."""

    stage: str
    name: str
    text: str


def instructions() -> list[Instruction]:
    """Return all instructions in order. The stage of one before the first FROM is empty."""
    found, stage = list[Instruction](), ""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, text = line.strip().partition(" ")
        if name == "FROM":
            stage = text.rpartition(" ")[2]
        if name:
            found.append(Instruction(stage, name, " ".join(text.split())))
    return found


def run_steps(stage: str) -> list[str]:
    """Return the commands that a stage runs."""
    return [
        instruction.text
        for instruction in instructions()
        if (instruction.stage, instruction.name) == (stage, "RUN")
    ]


def context_files() -> list[Path]:
    """Return the tracked and new files of the context, relative to the repository."""
    rules = [line for line in IGNORED.read_text().splitlines() if line and line[0] not in "#*"]
    wanted = [rule.removeprefix("!") for rule in rules]
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *wanted],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(part) for part in listing.stdout.split("\0") if part and (ROOT / part).is_file()]
