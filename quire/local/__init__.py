"""Servers of a local cluster as child processes, and their certificates.

- `child_process`: one process: start, pause, kill, stop, and the end of its log.
- `local_server`: one server of a local cluster.
- `local_bookie`: one bookie with its own directory.
- `local_broker`: one broker with its own port.
- `local_console`: the console with its own port.
- `starting`: starts of several servers at a time, and their limits.
- `kept_ports`: ports, kept in files from run to run.
- `secure_directory`: certificates for every role, and the files that use them.
- `development_certificates`: an authority and certificates for development and tests.
"""
