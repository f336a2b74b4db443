# Record batches to columns and back, compiled. Filled in beside millstream.records.arrow.
