"""Settings of topics, and the configuration of logs that they give.

- `topic_configs`: checks of settings.
- `topic_config_table`: every setting of a topic.
- `log_config`: meaning of a topic's settings for its logs.
"""
