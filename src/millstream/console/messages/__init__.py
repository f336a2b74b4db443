"""A topic's records: decoded, searched, followed, one by one."""
