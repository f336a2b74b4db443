"""What the console's screens show, made from what a broker tells: no HTTP, no asyncio, no HTML."""
