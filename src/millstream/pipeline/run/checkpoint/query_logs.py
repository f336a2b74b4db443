"""What a job reads in Spark's checkpoints of its queries: their ids, and where and when each batch ends."""

from __future__ import annotations

import json
from typing import Any

from millstream.core.errors import MillstreamError
from millstream.pipeline.connector.offsets import Offsets, finish_in, from_json
from millstream.pipeline.run.checkpoint.files import CheckpointFiles


class QueryLogs:
    """The checkpoints of all queries of a job, in one directory."""

    def __init__(self, files: CheckpointFiles, directory: str) -> None:
        self._files = files
        self._directory = directory

    def begun(self, query: str) -> bool:
        """True if the query has ever planned a batch. A query that has not keeps no state."""
        return any(name.isdigit() for name in self._files.names(f"{self._directory}/{query}/offsets"))

    def query_id(self, query: str) -> str | None:
        """The id that Spark gave the query at its first start; None if it has never been started."""
        text = self._files.read(f"{self._directory}/{query}/metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise self._damaged(f"{self._directory}/{query}/metadata") from None

    def offsets(self, query: str, batch: int) -> Offsets:
        """Where a batch ends. For a topic that is read twice, this is what both have read."""
        found: Offsets = {}
        for source in self._logged(query, batch)[1]:
            for place, offset in from_json(source).items():
                found[place] = min(offset, found.get(place, offset))
        return found

    def time(self, query: str, batch: int) -> int:
        """When a batch was planned, in microseconds. A batch that is run again has the same time."""
        return 1000 * int(self._logged(query, batch)[0]["batchTimestampMs"])

    def finish(self, query: str, batch: int) -> int | None:
        """The event time to which a batch carries its operators, in microseconds; None if it carries none."""
        told = [finish_in(source) for source in self._logged(query, batch)[1]]
        return max((one for one in told if one is not None), default=None)

    def carry_watermark(self, query: str, batch: int, by_ms: int) -> None:
        """Plan one more batch, without records and with Spark's watermark ``by_ms`` later. Spark runs a
        batch that is in its log of offsets but was not committed, so the query closes its windows when it
        starts next."""
        settings, sources = self._logged(query, batch)
        name = f"{self._directory}/{query}/commits/{batch}"
        try:
            committed = json.loads((self._files.read(name) or "").splitlines()[1])["nextBatchWatermarkMs"]
        except (ValueError, KeyError, IndexError, TypeError):
            raise self._damaged(name) from None
        settings["batchWatermarkMs"] = max(settings["batchWatermarkMs"], committed) + by_ms
        settings["batchTimestampMs"] += 1
        lines = ["v1", json.dumps(settings), *(json.dumps(source) if source else "-" for source in sources)]
        self._files.write(f"{self._directory}/{query}/offsets/{batch + 1}", "\n".join(lines))

    def _logged(self, query: str, batch: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A batch in Spark's log of offsets: its settings, and where it ends in each source."""
        name = f"{self._directory}/{query}/offsets/{batch}"
        try:
            version, settings, *sources = (self._files.read(name) or "").splitlines()
            found = json.loads(settings)
            if version == "v1" and "batchTimestampMs" in found:
                return found, [{} if source == "-" else json.loads(source) for source in sources]
        except (ValueError, TypeError):
            pass
        raise self._damaged(name)

    def _damaged(self, name: str) -> MillstreamError:
        return MillstreamError(f"{self._files.location}/{name} can't be read: the checkpoint is damaged")
