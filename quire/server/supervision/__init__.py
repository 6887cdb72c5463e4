"""Messages of a server process to the manager that started it.

- `notify`: systemd's protocol: ready, stopping, and signs of life.
"""
