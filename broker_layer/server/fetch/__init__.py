"""The Fetch API: sessions, reading, and waiting for records."""
