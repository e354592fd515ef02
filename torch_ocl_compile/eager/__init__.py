# torch_ocl_compile/eager/__init__.py: ops outside compiled functions, each compiled on its own.
from torch_ocl_compile.eager.compile import reasons as reasons
