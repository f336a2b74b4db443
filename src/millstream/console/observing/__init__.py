"""What the console knows of a cluster: sampled once for all viewers, with its recent history."""
