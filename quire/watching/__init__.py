"""Metrics of all servers of a cluster, read again and again, and a bundle for support.

- `scrape`: one reading of a server's metrics. Pure.
- `rates`: what a server does per second, from two readings. Pure.
- `watch`: readings of all servers that are up.
- `bundle`: one file with what is known of a cluster, without secrets.
"""
