"""JSON Schema: documents, their differences, and which changes keep old data valid."""
