"""``partition.metadata``: the id of the topic that a log's directory belongs to, in Apache Kafka's format.

    version: 0
    topic_id: 3Qm6jVYbTgK3Ytk2vL0QZw      16 bytes in base64, without padding

The id distinguishes the directory of a deleted topic from that of a new one with the same name. It also
allows a lost catalogue to be rebuilt with the ids that clients and the archive know.
"""

from __future__ import annotations

import base64
import binascii
import uuid

from millstream.log.storage.files import Files, read_file

PARTITION_METADATA = "partition.metadata"
_ID = "topic_id: "


def read_topic_id(files: Files, directory: str) -> uuid.UUID | None:
    """The topic id in a log's directory; None if the file is missing or can't be read, which does no harm."""
    try:
        text = read_file(files, f"{directory}/{PARTITION_METADATA}").decode(errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(_ID):
            try:
                return uuid.UUID(bytes=base64.urlsafe_b64decode(line[len(_ID) :].strip() + "=="))
            except (ValueError, binascii.Error):
                return None
    return None


def write_topic_id(files: Files, directory: str, topic_id: uuid.UUID) -> None:
    """Write the id, in place and without a sync. If a crash loses the file or cuts it off, the next start
    writes it again."""
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    file = files.open(f"{directory}/{PARTITION_METADATA}", create=True)
    file.pwrite(f"version: 0\n{_ID}{text}\n".encode(), 0)
