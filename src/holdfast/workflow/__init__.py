"""Flows: jobs that depend on jobs. `core/flow.py` says what a flow is in a store."""
