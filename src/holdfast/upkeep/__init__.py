"""Upkeep: background maintenance, one duty per file, done by one elected process at a time."""
