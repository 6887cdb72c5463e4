"""Floods: what bad clients do to the good ones of the same server.

- `flood`: the script.
- `kinds`: kinds of floods, their sizes and bounds.
- `flooded_cluster`: the attacked servers, and what clients find there.
- `good_clients`: the clients that are timed.
- `flooder_process`: the process of the bad clients, as the script sees it.
- `flooder`: the program of that process.
- `flood_job`: what the two say to each other.
- `crowd`: bad clients that come again.
- `stuck_clients`: clients of a bookie that are silent, slow, or read nothing.
- `attach_flood`: attaches of ledgers that do not exist.
- `broker_floods`: Fetches that are not read, fetch sessions that grow, many small requests.
- `silent_connections`: connections that never send a byte.
- `gateway_floods`: watches.
- `bookie_link`, `broker_link`: connections to a bookie and to a broker.
"""
