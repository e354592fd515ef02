# torch_ocl_compile/tools/__init__.py: programs for users: the demo and the doctor.
