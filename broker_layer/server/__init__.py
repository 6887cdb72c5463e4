"""Server of a broker: connections, dispatch, Produce, Fetch, offsets and metrics.

- `dispatch`: finds what serves a request, and turns the answer into bytes.
- `exchange`: one request between arrival and answer.
- `request_tasks`: coroutines that answer requests.
- `request_spans`: traces of Produce and Fetch.
- `broker_services`: services of requests, over any logs.
- `service_tools`: what those services work with.
- `ports`: what the server needs of the parts below it.
- `offsets`: ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers.
- `deadlines`: one timer for many waits.
- `counters`: counters.
- `metrics`: Prometheus metrics.
- `metric_help`: kind and help text of every metric.
- `admin_http`: HTTP: partitions that the broker leads.
- `config`: limits of the server.
- `access/`: how listeners take clients, with certificates and logins.
- `connections/`: sockets, listeners and frames.
- `produce/`: Produce.
- `fetch/`: Fetch.
- `quotas/`: pauses of clients that use too much.
"""
