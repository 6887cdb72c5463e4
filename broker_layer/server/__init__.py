"""Server of a broker: connections, dispatch, Produce, Fetch, offsets and metrics.

- `listeners`: names, bind addresses and advertised addresses.
- `access`: how listeners take clients, with certificates and logins.
- `connections`: sockets, frames in and answers out in request order.
- `request_order`: which requests of a connection wait for earlier ones.
- `frame_assembler`: byte stream into frames.
- `dispatch`: finds what serves a request, and turns the answer into bytes.
- `exchange`: one request between arrival and answer.
- `quotas`: pauses of clients that use too much.
- `produce`: checks each batch, appends it, and answers when all are committed.
- `produce_verification`: confirmation of a transaction before its first batch.
- `fetch`: answers with what is there, or waits.
- `fetch_sessions`: partitions of a session, and those that an answer names (KIP-227).
- `offsets`: ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers.
- `broker_services`: services of requests, over any logs.
- `service_tools`: what those services work with.
- `ports`: what the server needs of the parts below it.
- `server_limits`: limits and counters.
- `admin`: metrics, and HTTP: partitions that the broker leads.
"""
