# torch_ocl_compile/lowering/movement/__init__.py: views, reads and writes at computed places, and sorting.
