# torch_ocl_compile/__main__.py: `python -m torch_ocl_compile COMMAND`, the same as `torch-ocl COMMAND`.
from torch_ocl_compile.cli import main

raise SystemExit(main())
