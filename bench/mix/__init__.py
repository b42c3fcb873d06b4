"""The mix: the jobs of a web product, on each store, beside other queues. `python -m bench.mix`."""
