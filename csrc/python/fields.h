// csrc/python/fields.h: members of a C++ struct under their own names in Python: each name is written once.
#pragma once

#include <pybind11/pybind11.h>

namespace py = pybind11;  // As torch/csrc/utils/pybind.h has it.

// OCL_EACH(X, of, a, b, c): X(of, a) X(of, b) X(of, c), for up to 64 names. A macro does not expand itself, so each round of
// OCL_AGAIN_* expands the next call of OCL_EACH_STEP.
#define OCL_EACH(X, of, ...) OCL_AGAIN_3(OCL_EACH_STEP(X, of, __VA_ARGS__))
#define OCL_EACH_STEP(X, of, name, ...) X(of, name) __VA_OPT__(OCL_EACH_NEXT OCL_NOTHING()()(X, of, __VA_ARGS__))
#define OCL_EACH_NEXT() OCL_EACH_STEP
#define OCL_NOTHING()
#define OCL_AGAIN_3(...) OCL_AGAIN_2(OCL_AGAIN_2(OCL_AGAIN_2(OCL_AGAIN_2(__VA_ARGS__))))
#define OCL_AGAIN_2(...) OCL_AGAIN_1(OCL_AGAIN_1(OCL_AGAIN_1(OCL_AGAIN_1(__VA_ARGS__))))
#define OCL_AGAIN_1(...) OCL_AGAIN_0(OCL_AGAIN_0(OCL_AGAIN_0(OCL_AGAIN_0(__VA_ARGS__))))
#define OCL_AGAIN_0(...) __VA_ARGS__

// Parts of the definition of a class or an enumeration, .def(..).def(..), and statements that fill a dict `d` from an object.
#define OCL_READ_ONE(Class, name) .def_readonly(#name, &Class::name)
#define OCL_READ(Class, ...) OCL_EACH(OCL_READ_ONE, Class, __VA_ARGS__)
#define OCL_WRITE_ONE(Class, name) .def_readwrite(#name, &Class::name)
#define OCL_WRITE(Class, ...) OCL_EACH(OCL_WRITE_ONE, Class, __VA_ARGS__)
#define OCL_CALL_ONE(Class, name) .def(#name, &Class::name)
#define OCL_CALL(Class, ...) OCL_EACH(OCL_CALL_ONE, Class, __VA_ARGS__)
#define OCL_VALUE_ONE(Enum, name) .value(#name, Enum::name)
#define OCL_VALUES(Enum, ...) OCL_EACH(OCL_VALUE_ONE, Enum, __VA_ARGS__)
#define OCL_ITEM_ONE(object, name) d[#name] = object.name;
#define OCL_ITEMS(object, ...) OCL_EACH(OCL_ITEM_ONE, object, __VA_ARGS__)
