"""Connections to bookies, and the choice of bookies.

- `pool`: one shared connection for each bookie, by its id.
- `pool_link`: makes and renews that connection.
- `connection`: requests over one connection, many at a time.
- `hello_check`: what is wrong with the answer to a hello.
- `bookie_login`: login after the hello.
- `connection_calls`: requests to one bookie, and how they can end.
- `connection_writes`: frames of one iteration of the loop, written together.
- `ledger_access`: master key of a ledger, for repair.
- `latency`: recent times of answers.
- `placement`: bookies that are up and did not fail lately.
- `placement_policy`: choice of an ensemble and of replacements.
- `placement_search`: copies on different racks and hosts (rule 3.3).
- `refusals`: reasons of bookies for lack of a role.
- `quarantine`: bookies that failed lately.
"""
