# tests/offline/__init__.py: kernels compiled for GPUs that this machine lacks, with the compilers of their vendors.
