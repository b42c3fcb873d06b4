"""The contestants of the mix. Each module runs as a process, in the environment of its library."""
