# torch_ocl_compile/compile/__init__.py: backend="ocl": from Dynamo's graph to a compiled plan and its calls.
