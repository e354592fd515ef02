# torch_ocl_compile/fx/__init__.py: FX graphs: ops of our own, effects of nodes, and the rules for passes that change graphs.
