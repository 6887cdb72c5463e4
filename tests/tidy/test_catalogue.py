"""The docstring of each package names every module and package in it, each on a line."""

import ast
import re
from pathlib import PurePosixPath

from tests.tidy.test_tidy import PRODUCT

LINE = re.compile(r"^- `([\w/]+)`: \S", re.MULTILINE)
PACKAGES = sorted(
    str(PurePosixPath(path).parent) for path in PRODUCT if path.endswith("/__init__.py")
)
WITHOUT_MODULES = ("broker_layer/kafka/schemas",)
"""A package of data files."""


def members(package: str) -> list[str]:
    """Return what a package holds, as its docstring names it: `module`, `package/`."""
    names = []
    for path in map(PurePosixPath, PRODUCT):
        if str(path.parent) == package and path.stem != "__init__":
            names.append(path.stem)
        if str(path.parent.parent) == package and path.name == "__init__.py":
            names.append(f"{path.parent.name}/")
    return sorted(names)


def test_each_package_lists_what_is_in_it() -> None:
    wrong = {}
    for package in PACKAGES:
        if package in WITHOUT_MODULES:
            continue
        text = ast.get_docstring(PRODUCT[f"{package}/__init__.py"].tree) or ""
        listed = LINE.findall(text)
        if sorted(listed) != members(package):
            wrong[package] = sorted({*listed} ^ {*members(package)}) or listed
    assert not wrong, f"the docstring of __init__.py lists each module once: {wrong}"
