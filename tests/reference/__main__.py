"""`python -m tests.reference`, or `make docs`: write the pages of docs/reference/ and docs/man/."""

import sys
from pathlib import Path

from tests.reference.man_pages import man_pages
from tests.reference.pages import DIRECTORY, MAN_DIRECTORY, PAGES


def main() -> int:
    """Write every page; print those that changed."""
    for name, make in PAGES.items():
        _write(DIRECTORY / name, make())
    for name, text in man_pages().items():
        _write(MAN_DIRECTORY / name, text)
    return 0


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        sys.stdout.write(f"wrote docs/{path.parent.name}/{path.name}\n")


if __name__ == "__main__":
    sys.exit(main())
