"""Parts common to all server processes of Quire: options, log, admin port, signals and a clean
stop.

Leaves what a server serves to `bookie` and `broker_layer`; imports no other package of Quire.

- `process`: a server on a loop until a signal, its parent's end or a failure.
- `server_log`: JSON log lines, a limited number of them; who tried or changed what.
- `admin`: admin port: health, metrics and the routes of a server.
- `token_check`: the token of an admin port, and a limit of wrong ones.
- `http_listening`: ports that speak HTTP: their connections, and their log.
- `metrics`: Prometheus's text format, and metrics of every server process.
- `latency`: counts of latencies in buckets, and how late the event loop is.
- `slow_work`: threads for work that takes milliseconds of processor time.
- `descriptors`: limit of open files, and refusal of connections at it.
- `listening`: opens addresses, checks clients' deadlines, and waits until connections finish.
- `server_options`: options that servers of every kind have, and refusal to be open by accident.
- `served_tls`: the certificate of a server process, its new files and its metrics.
- `tls_listening`: addresses whose connections begin with TLS, within limits, and TLS of each.
- `connection`: server's end of one connection: pauses of reading, deadlines, its end.
- `connection_context`: what all connections of a server share: limits, counters, turns, room.
- `overriding`: `override` for the type checker.
- `notify`: messages to systemd.
- `errors`: what keeps a server from starting.
"""
