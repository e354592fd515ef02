# torch_ocl_compile/lowering/layers/__init__.py: other layers of networks: pooling, padding, losses, embeddings.
