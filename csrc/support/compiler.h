// csrc/support/compiler.h: what compilers spell differently.
#pragma once

/// A function that only the library or program which contains it can call. On Windows that is every function that is not
/// exported.
#if defined(_WIN32)
#define OCL_HIDDEN
#else
#define OCL_HIDDEN __attribute__((visibility("hidden")))
#endif
