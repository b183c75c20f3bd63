"""The report: a view on a run, drawn anew from ledger and artifacts in seconds; no stage, and no cache."""
