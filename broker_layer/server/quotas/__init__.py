"""Quotas of clients of a broker, and how long they are not read.

Leaves which quota holds for a client, and what it has used, to `metadata.security.rates`.

- `address_rate`: the rate of new connections from one address.
- `work_time`: processor time of one request.
- `client_quotas`: all quotas of a broker.
"""
