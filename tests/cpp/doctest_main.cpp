// tests/cpp/doctest_main.cpp: doctest itself and main(), compiled once for all tests that have no main() of their own.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
