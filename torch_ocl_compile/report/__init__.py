# torch_ocl_compile/report/__init__.py: describes what was compiled and how it runs, as an object that prints and saves
# a page.
"""`explain` compiles and runs a function; `watch` observes a program while it runs. Both give an Explanation."""

from torch_ocl_compile.report.explanation import Explanation as Explanation
from torch_ocl_compile.report.explanation import explain as explain
from torch_ocl_compile.report.explanation import watch as watch
