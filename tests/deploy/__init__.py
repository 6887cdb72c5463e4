"""Checks of the files in `deploy/`, as far as they can be checked without a cluster.

- `test_systemd`: units of systemd.
"""
