// csrc/python/pch.h: the torch and pybind11 headers, compiled once for the extension.
#pragma once

#include <ATen/ATen.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
