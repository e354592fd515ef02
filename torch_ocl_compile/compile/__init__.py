# torch_ocl_compile/compile/__init__.py: backend="ocl": turns Dynamo's graph into a compiled plan, and calls it.
