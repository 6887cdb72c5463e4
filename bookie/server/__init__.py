"""The network side of a bookie: connections, requests, long polls, metrics and the admin port."""
