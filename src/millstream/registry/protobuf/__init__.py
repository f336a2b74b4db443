"""Protobuf: ``.proto`` files, their differences, and which changes keep old data readable."""
