"""Tests of the installed package: wheel, sdist, and the command in bare environments."""
