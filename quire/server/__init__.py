"""Parts common to all server processes of Quire: options, log, admin port, signals and a clean
stop.

Leaves what a server serves to `bookie` and `broker_layer`; imports no other package of Quire.

- `process`: a server on a loop until a signal, its parent's end or a failure.
- `server_log`: JSON log lines, a limited number of them.
- `admin`: admin port: health, metrics and the routes of a server.
- `token_check`: the token of an admin port, and a limit of wrong ones.
- `http_ports/`: ports that speak HTTP: their connections, and their log.
- `metrics`: Prometheus's text format.
- `process_metrics`: metrics of every server process.
- `latency`: counts of latencies in buckets.
- `recent_latency`: percentiles of the latencies of the last seconds. Pure.
- `loop_lag`: how late the event loop calls its timers.
- `slow_work`: threads for work that takes milliseconds of processor time.
- `descriptors`: limit of open files, and refusal of connections at it.
- `listening`: opens addresses, checks clients' deadlines, and waits until connections finish.
- `server_options`: options that servers of every kind have, and refusal to be open by accident.
- `served_tls`: the certificate of a server process, its new files and its metrics.
- `handshake_alert`: the alert that says to a client why its handshake failed.
- `tls_listening`: addresses whose connections begin with TLS, within limits.
- `tls_transport`: TLS of one connection, with a count of what its client does not take.
- `connection`: server's end of one connection: pauses of reading, deadlines, its end.
- `connection_context`: what all connections of a server share: limits, counters, open connections.
- `answer_room`: memory that one connection has for answers.
- `address_limits`: limits of the connections from one address.
- `step_turns`: turns of the loop among long pieces of work.
- `pause`: reasons why nothing is read from a client.
- `transport_writing`: writes with back-pressure on every Python.
- `overriding`: `override` for the type checker.
- `audit_log`: who tried or changed what.
- `supervision/`: messages to systemd.
- `errors`: what keeps a server from starting.
"""
