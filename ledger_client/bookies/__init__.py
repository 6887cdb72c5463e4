"""Connections to bookies, and the choice of bookies.

- `pool`: one shared connection for each bookie, by its id.
- `pool_link`: makes and renews that connection.
- `bookie_login`: login after the hello.
- `connection`: requests over one connection, many at a time.
- `connection_calls`: how requests to one bookie can end.
- `placement`: bookies that are up and not in quarantine because they failed lately.
- `placement_policy`: choice of an ensemble and of replacements.
"""
