"""What the console's screens show, made from a broker's answers without HTTP or asyncio. It may import what
the console may, plus the console's ``links`` and ``units``; the rest of the console imports it. Start reading
at ``snapshot`` (what a broker looked like at one moment) and ``observer`` (which makes it); the other modules
turn snapshots into lists and pages, or make one kind of change."""
