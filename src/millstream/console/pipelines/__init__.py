"""Jobs: the list, the live graph of one, and forgetting one that has ended."""
