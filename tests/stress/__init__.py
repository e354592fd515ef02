# tests/stress/__init__.py: random work on several streams, threads and devices, compared with the same work in sequence.
