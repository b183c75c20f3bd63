"""Readers: one file format each, from a local file to tables of pairs."""
