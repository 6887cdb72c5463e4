"""Administration APIs: metadata, topics, settings and elections."""
