"""`python -m tests.reference`, or `make docs`: write the pages of docs/reference/."""

import sys

from tests.reference.pages import DIRECTORY, PAGES


def main() -> int:
    """Write every page; print those that changed."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        path, text = DIRECTORY / name, make()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"wrote docs/reference/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
