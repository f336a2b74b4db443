"""``partition.metadata``: the id of the topic that a directory is of, as Apache Kafka writes it.

    version: 0
    topic_id: 3Qm6jVYbTgK3Ytk2vL0QZw      16 bytes in base64, without padding

It tells the directory of a deleted topic from that of a new one with the same name, and lets a lost catalogue
be rebuilt with the ids that clients and the archive know.
"""

from __future__ import annotations

import base64
import binascii
import uuid

from millstream.log.files import Files, read_file

PARTITION_METADATA = "partition.metadata"
_ID = "topic_id: "


def read_topic_id(files: Files, directory: str) -> uuid.UUID | None:
    """The id in a log's directory; None if it is not there or can't be read, which costs nothing else."""
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
    """In place and not synced: one that a crash took away or cut off is written again at the next start."""
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    file = files.open(f"{directory}/{PARTITION_METADATA}", create=True)
    file.pwrite(f"version: 0\n{_ID}{text}\n".encode(), 0)
