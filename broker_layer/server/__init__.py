"""The broker's server: connections, dispatch, Produce, Fetch, offsets, metrics."""
