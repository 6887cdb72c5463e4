"""Rates of clients under quotas: which quota holds for a client, and what it has used.

Brokers and bookies use them. Leaves what a client over its quota feels to the servers.

- `quota_rules`: which quota holds for a client.
- `rate_buckets`: what clients have used of their rates.
- `rate_quota`: the quotas of one key.
"""
