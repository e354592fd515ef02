// csrc/support/support.cpp: keeps the library non-empty where everything is in headers.
