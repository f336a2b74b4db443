"""``python -m tests.console.pictures``: the pictures of the console in the README, taken from the real demo.

It runs the demo, waits until its pipeline works, and takes the overview by day and by night. They are to be
looked at before they are committed.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.browser import chromium, window

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SIZE = (1280, 800)
MOST_BYTES = 200_000
SETTLE_MS = 30_000  # for a curve that shows something


def main() -> int:
    demo = subprocess.Popen(
        [str(Path(sys.executable).with_name("millstream")), "demo", "--for", "5m"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    try:
        found = None
        for line in demo.stdout:
            print(line, end="", flush=True)
            found = found or re.search(r"http://[\d.:]+", line)
            if found and "up to date" in line:
                break
        if found is None:
            print("the demo did not say where its console is", file=sys.stderr)
            return 1
        PICTURES.mkdir(parents=True, exist_ok=True)
        with chromium() as browser, window(browser, size=SIZE) as page:
            page.goto(found[0])
            page.get_by_text("All is well.").wait_for(timeout=60_000)
            page.wait_for_timeout(SETTLE_MS)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                page.wait_for_timeout(500)  # charts are drawn again
                path = PICTURES / f"console-overview-{scheme}.png"
                page.screenshot(path=path)
                size = path.stat().st_size
                print(f"{path.name}: {size:,} bytes")
                assert size < MOST_BYTES, "too large for a README"
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=400)
    return 0


if __name__ == "__main__":
    sys.exit(main())
