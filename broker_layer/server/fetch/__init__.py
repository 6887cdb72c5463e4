"""Fetch: sessions, reading, and waiting for records.

- `fetch`: answers with what is there, or waits.
- `fetch_reading`: partitions of one Fetch, within its limits of bytes.
- `fetch_sessions`: partitions of a session, and those that an answer names (KIP-227).
"""
