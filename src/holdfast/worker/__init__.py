"""The worker process: claim, run, lease, pool, signals, supervise."""
