"""Measures ways to replicate a ledger side by side, under faults.

- `configurations`: ways to replicate, as values.
- `scenarios`: faults and their times, as values.
- `faults`: what can be done to a cluster, as values.
- `runner`: runs configurations through scenarios.
- `injection`: injects the faults of a scenario, and records when.
- `delaying_proxy`: delays every byte between a client and a bookie.
- `redirecting`: addresses of proxies in place of bookies'.
- `load`: writing process.
- `load_process`: starts that process and waits for its end.
- `open_load`: appends on a fixed schedule.
- `schedule`: when each append is due.
- `journal`: what the load saw, safe from a kill -9.
- `measuring`: figures of one run.
- `bookie_meters`: bytes that bookies wrote.
- `durability`: how safe acknowledged entries are.
- `histogram`: latencies in log-linear buckets.
- `figures`: names, units and places of figures.
- `results`: figures of one run, as JSON.
- `comparison`: all runs of one comparison.
- `spreads`: repetitions, and differences beyond noise.
- `machine`: the machine that a comparison ran on.
- `choosing/`: which configuration serves which need.
- `report/`: the HTML page.
"""
