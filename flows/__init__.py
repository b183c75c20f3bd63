"""The bridge: Prefect flows, Ray, sources of bytes, and the command line."""
