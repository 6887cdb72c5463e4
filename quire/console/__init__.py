"""Console: pages of a cluster for a browser. A client of the cluster, which may stop at any time.

Leaves the checks and figures to `quire.operate.health` and the modules beside it. The directories
`templates` and `static` have the HTML of the pages, and style sheets and scripts.

- `options`: options of a console.
- `main`: process of one console, `run_console`.
- `server`: the parts of a console, and its port.
- `guard`: what each request needs before a page serves it, and who has logged in.
- `access`: which hosts, methods and forms are allowed. Pure.
- `context`: what pages read, and how they answer.
- `admin_servers`: admin servers of bookies, as pages ask them.
- `survey`: checks of the complete cluster in the background.
- `cluster_metrics`: metrics of the complete cluster.
- `paging`: pages of long lists, and numbers in requests.
- `templating`: HTML from templates.
- `topics/`: topics, groups and transactions, as pages read and change them.
- `pages/`: one module for each area of the console.
- `bookie_report`: one bookie: what it reports, and its changes.
- `latency`: latency of appends, since the console started.
- `drawings`: drawings of a ledger as SVG. Pure.
- `ledger/`: one ledger: its copies, its entries and what happened to it.
"""
