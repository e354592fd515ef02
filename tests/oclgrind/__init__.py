# tests/oclgrind/__init__.py: every portable kernel template under Oclgrind, which watches each access to memory.
