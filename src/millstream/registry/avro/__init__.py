"""Avro: schemas, and which schema can read what another wrote."""
