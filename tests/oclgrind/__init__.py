# tests/oclgrind/__init__.py: runs every portable kernel template under Oclgrind, which checks each memory access.
