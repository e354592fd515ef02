# torch_ocl_compile/fx/__init__.py: FX graphs: their ops and effects, and the rules for passes that change them.
