"""Settings of topics, and the configuration of logs that they give."""
