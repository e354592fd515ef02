# tests/stress/__init__.py: random work over streams, threads and devices, compared with the same one after the other.
