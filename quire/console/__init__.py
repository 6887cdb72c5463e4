"""Console: pages of a cluster for a browser. A client of the cluster, which may stop at any time.

The directories `templates` and `static` have the HTML of the pages, and style sheets and scripts.

- `options`: options of a console.
- `main`: process of one console, `run_console`.
- `server`: the parts of a console, and its port.
- `guard`: what each request needs before a page serves it, and who has logged in.
- `access`: which hosts, methods and forms are allowed. Pure.
- `context`: what pages read, and how they answer.
- `admin_servers`: admin servers of bookies, as pages ask them.
- `cluster_metrics`: checks of the complete cluster in the background, and its metrics.
- `templating`: HTML from templates, and pages of long lists.
- `topics/`: topics, groups and transactions, as pages read and change them.
- `pages/`: one module for each area of the console.
- `latency`: latency of appends, since the console started, and what happened to a ledger.
- `safety`: one ledger: how safe its entries are, as text and drawings. Pure.
- `entries`: reads of its entries.
"""
