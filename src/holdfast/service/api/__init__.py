"""The handlers: each parses, calls, renders."""
