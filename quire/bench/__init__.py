"""Measures ways to replicate a ledger side by side, under faults: `quire bench`.

- `configurations`: ways to replicate, as values.
- `scenarios`: faults and their times, as values.
- `faults`: what can be done to a cluster, as values.
- `runner`: runs configurations through scenarios, each with a process that writes.
- `injection`: injects the faults of a scenario, and records when; delays connections.
- `load`: writing process.
- `open_load`: appends on a fixed schedule.
- `journal`: what the load saw, safe from a kill -9.
- `measuring`: figures of one run; latencies in log-linear buckets.
- `durability`: how safe acknowledged entries are.
- `figures`: names, units and places of figures; repetitions, and differences beyond noise.
- `results`: figures of one run, as JSON.
- `comparison`: all runs of one comparison, and the machine that they ran on.
- `choosing`: which configuration serves which need.
- `report_page`: the HTML page, and its content for the console.
- `report_charts`: pictures as SVG, each with a table of its data.
- `svg`: elements and scales of SVG.
"""
