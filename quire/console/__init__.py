"""Console: pages of a cluster for a browser. A client of the cluster, which may stop at any time.

Leaves the checks and figures to `quire.operate.health` and the modules beside it. The directories
`templates` and `static` have the HTML of the pages, and style sheets and scripts.

- `options`: options of a console.
- `main`: process of one console, `run_console`.
- `server`: the parts of a console, and its port.
- `guard`: what each request needs before a page serves it, and the headers of each answer.
- `sessions`: who has logged in.
- `access`: which hosts, methods and forms are allowed. Pure.
- `context`: what pages read, and how they answer.
- `admin_servers`: admin servers of bookies, as pages ask them.
- `survey`: checks of the complete cluster in the background.
- `cluster_metrics`: metrics of the complete cluster.
- `paging`: pages of long lists.
- `asked`: numbers that a request asks for.
- `templating`: HTML from templates.
- `operations/`: bookies and repair, as pages show and change them.
- `topics/`: topics, groups and transactions, as pages read and change them.
- `reports/`: directory of bench reports.
- `pages/`: one module for each area of the console.
- `latency/`: latency of appends, since the console started.
- `ledger/`: one ledger: its copies, its entries and what happened to it.
- `drawings/`: drawings as SVG. Pure.
"""
