"""The overview: health, disks, rates, and what needs attention first."""
