"""Connections to bookies, and the choice of bookies.

- `pool`: one shared connection for each bookie, by its id.
- `pool_link`: makes and renews that connection.
- `connection`: requests over one connection, many at a time.
- `bookie_login`: login after the hello.
- `connection_calls`: requests to one bookie, and how they can end.
- `ledger_access`: master key of a ledger, for repair.
- `latency`: recent times of answers.
- `placement`: bookies that are up and did not fail lately.
- `placement_policy`: choice of an ensemble and of replacements.
- `refusals`: reasons of bookies for lack of a role.
- `quarantine`: bookies that failed lately.
"""
