"""Blobs, artifacts, recipes, the ledger of attempts, leases and lineage."""
