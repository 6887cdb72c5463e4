"""Network side of a bookie: connections, requests, long polls, metrics and the admin port.

- `server`: listens, and limits the answers that clients have not read.
- `connection`: one client: frames, adds and answers.
- `greeting`: one client from its hello to the end of its login.
- `client_logins`: logins of clients: what all connections share.
- `client_quotas`: bytes that clients append and read in a second.
- `incoming_batch`: check of a batch before anything is done with it.
- `request_runner`: requests of one connection that wait, a limited number and size at a time.
- `ledger_requests`: reads, fences, LACs and lists of ranges.
- `long_polls`: one connection's long polls.
- `server_answers`: frames of answers.
- `server_access`: principals and what they may do.
- `attachments`: attached ledgers of one connection, with the rights of the client.
- `attached_requests`: requests for attached ledgers: executed, or refused.
- `ledger_authorizer`: rights of clients on ledgers, from metadata and grants.
- `ledger_rights`: the right that each operation needs; pure.
- `server_context`: what all connections share.
- `server_limits`: limits of the server.
- `server_counters`: counters.
- `metrics`: Prometheus metrics.
- `metric_help`: kind and help text of every metric.
- `registration`: current registration of this bookie.
- `collector`: removal of deleted and released ledgers (rule 10.1).
- `admin`: HTTP: what the bookie holds, and a few switches.
"""
