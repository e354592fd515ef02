# torch_ocl_compile/tuning/__init__.py: measures kernel variants and stores the choices.
