"""Network side of a bookie: connections, requests, long polls, metrics and the admin port.

- `connection`: the data port, and one client: frames, adds and answers.
- `access`: who a client is, and what it may do.
- `client_logins`: logins of clients: what all connections share.
- `greeting`: one client from its hello to the end of its login.
- `client_quotas`: bytes that clients append and read in a second.
- `request_runner`: requests of one connection that wait, a limited number and size at a time;
  frames of answers.
- `ledger_requests`: reads, fences, LACs, lists of ranges and long polls.
- `attachments`: attached ledgers of one connection, with the rights of the client.
- `server_context`: what all connections share.
- `server_limits`: limits of the server, and its counters.
- `metrics`: Prometheus metrics, with their help texts.
- `registration`: current registration of this bookie, and log lines about its conditions.
- `collector`: removal of deleted and released ledgers (rule 10.1).
- `admin`: HTTP: what the bookie holds, and a few switches.
"""
