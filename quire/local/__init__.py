"""Servers of a local cluster as child processes, and their certificates.

- `child_process`: one process: start, pause, kill, stop, and the end of its log.
- `local_server`: one server of a local cluster: a bookie, a broker or the console.
- `bookie_group`: several bookies of one machine, and repair beside a bookie.
- `starting`: starts of several servers at a time, and their limits.
- `secure_directory`: certificates for every role, and the files that use them.
- `development_certificates`: an authority and certificates for development and tests.
"""
