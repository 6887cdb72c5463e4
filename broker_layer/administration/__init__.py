"""What administrators ask of topics: metadata, topics, settings, elections."""
