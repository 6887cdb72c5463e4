"""Bookies that are up, their cookies, positions and locations, and gateways.

- `registration`: what a live bookie says about itself, and its bytes.
- `registrar`: registers this process, as a bookie or as a client.
- `directory`: shows a client which bookies are up.
- `location`: rack and host of a bookie.
- `cookies`: identities of bookies.
- `cluster`: identity of the cluster, and the check that it exists.
- `positions`: position nodes: how far each bookie's log is durable.
- `gateways`: a record of each gateway that has served.
- `registry`: the names of the modules above, in one place.
"""
