"""Where bytes come from: HTTP, a file, the Python package index."""
