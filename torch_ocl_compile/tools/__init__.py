# torch_ocl_compile/tools/__init__.py: programs for users: doctor, traces, programs that rerun failures.
