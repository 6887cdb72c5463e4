"""Quotas of clients: who has which, what they have used, and how long they are not read.

- `quota_rules`: which quota holds for a client.
- `rate_buckets`: what clients have used of their rates.
- `rate_quota`: the quotas of one key.
- `address_rate`: the rate of new connections from one address.
- `work_time`: processor time of one request.
- `client_quotas`: all quotas of a broker.
"""
