// tests/cpp/test_ocl_run.cpp: the C functions of the shared library: results, errors and threads, on every device.
#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "csrc/run/ocl_run.h"
#include "csrc/run/ocl_run.hpp"
#include "csrc/support/path.h"
#include "tests/cpp/runtime_devices.h"
#include "tests/cpp/temporary_folder.h"
#include "tests/cpp/written_package.h"

namespace {

struct Fixture {
  std::string folder = new_folder("ocl_run");
  std::string path = folder + "/model.ocl", cache = folder + "/cache.sqlite";

  Fixture() {
    write_package(path, graph_text());
    for (const std::string& runtime : test_vendor_libraries()) ocl_add_runtime(runtime.c_str());
  }
  ~Fixture() { std::filesystem::remove_all(ocl::path_of(folder)); }

  /// Opens the package on each device. The kernels of the first call are in the cache for the next models.
  template <class Body>
  void for_each_model(const Body& body) const {
    if (ocl_device_count() == 0) MESSAGE("no OpenCL device: nothing was tested");
    for (int i = 0; i < ocl_device_count(); ++i) {
      CAPTURE(ocl_device_name(i));
      const std::string number = std::to_string(i);
      const ocl_options options{sizeof options, number.c_str(), cache.c_str(), 0, 0};
      ocl_model* model = nullptr;
      REQUIRE_MESSAGE(ocl_open(path.c_str(), &options, &model) == OCL_OK, ocl_error());
      body(model);
      ocl_close(model);
    }
  }
};

/// Threads use this too, so it has no macro of doctest: its buffers are thread_local, and mingw-w64 destroys them wrongly.
ocl_value tensor(ocl_model* model, int64_t rows, const std::vector<float>& data) {
  ocl_value value{OCL_TENSOR, nullptr, 0, 0};
  const int64_t sizes[] = {rows, 8};
  ocl_tensor_create(model, OCL_F32, 2, sizes, data.data(), &value.tensor);  // A call refuses the NULL of a failure.
  return value;
}

/// Returns whether a call with x = 0, 1, 2, ... gives the row sums of x plus 1, and twice the number of rows.
bool is_right(ocl_model* model, int64_t rows) {
  std::vector<float> x(static_cast<size_t>(rows) * 8), y(static_cast<size_t>(rows) * 4);
  std::iota(x.begin(), x.end(), 0.0f);
  const ocl_value argument = tensor(model, rows, x);
  ocl_value results[4];
  bool right = ocl_call(model, 0, &argument, 1, results, 4) == OCL_OK;
  if (right) {
    right = ocl_tensor_read(results[0].tensor, y.data(), y.size() * sizeof(float)) == OCL_OK &&
            results[2].integer == 2 * rows && ocl_tensor_sizes(results[3].tensor)[0] == rows;
    for (size_t i = 0; i < y.size(); ++i) right &= y[i] == static_cast<float>(64 * (i / 4) + 28 + 1);
    for (const ocl_value& result : results) ocl_tensor_release(result.kind == OCL_TENSOR ? result.tensor : nullptr);
  }
  ocl_tensor_release(argument.tensor);
  return right;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a package is described and called") {
  for_each_model([](ocl_model* model) {
    REQUIRE(ocl_method_count(model) == 1);
    CHECK(std::string(ocl_method_name(model, 0)) == "forward");
    ocl_info info;
    REQUIRE(ocl_argument_info(model, 0, 0, &info) == OCL_OK);
    CHECK(std::string(info.sizes) == "[s0, 8]");
    CHECK(ocl_result_count(model, 0) == 4);
    int number = -1;
    for (int i = 0; i < 4; ++i) {
      REQUIRE(ocl_result_info(model, 0, i, &info) == OCL_OK);
      CHECK(ocl_result_find(model, 0, info.name, &number) == OCL_OK);
      CHECK(number == i);
    }
    REQUIRE(ocl_argument_find(model, 0, "x", &number) == OCL_OK);
    CHECK(number == 0);
    CHECK(ocl_argument_find(model, 0, "y", &number) == OCL_BAD_INPUT);
    CHECK(std::string(ocl_error()) == "the method has no argument 'y'; it has x");
    REQUIRE(ocl_condition_count(model, 0) == 1);
    CHECK(std::string(ocl_condition_text(model, 0, 0)).find("at least 1") != std::string::npos);
    CHECK(ocl_condition_text(model, 0, 1) == nullptr);
    for (const int64_t rows : {3, 1, 64}) CHECK_MESSAGE(is_right(model, rows), ocl_error());
  });
}

TEST_CASE_FIXTURE(Fixture, "wrong files and arguments are errors with a message") {
  ocl_model* none = nullptr;
  CHECK(ocl_open((folder + "/missing.ocl").c_str(), nullptr, &none) != OCL_OK);
  CHECK(none == nullptr);
  CHECK(std::string(ocl_error()) != "");
  for_each_model([](ocl_model* model) {
    const ocl_value fits = tensor(model, 2, std::vector<float>(16)), empty = tensor(model, 0, {});
    ocl_value results[4];
    CHECK(ocl_call(model, 0, &empty, 1, results, 4) == OCL_BAD_INPUT);
    CHECK(std::string(ocl_error()).find("at least 1") != std::string::npos);
    CHECK(ocl_call(model, 0, &fits, 1, results, 3) == OCL_BAD_INPUT);
    CHECK(ocl_call(model, 7, &fits, 1, results, 4) == OCL_BAD_INPUT);
    for (const ocl_value& made : {fits, empty}) ocl_tensor_release(made.tensor);
  });
}

TEST_CASE_FIXTURE(Fixture, "a tensor is written again between calls") {
  for_each_model([](ocl_model* model) {
    const std::vector<float> ones(16, 1.0f), twos(16, 2.0f);
    const ocl_value x = tensor(model, 2, ones);
    ocl_value first[4], second[4];
    REQUIRE(ocl_call(model, 0, &x, 1, first, 4) == OCL_OK);                               // The write must wait for this call.
    CHECK(ocl_tensor_write(x.tensor, twos.data(), 16 * sizeof(float)) == OCL_BAD_INPUT);  // A result is the argument.
    CHECK(std::string(ocl_error()).find("shares its memory") != std::string::npos);
    ocl_tensor_release(first[3].tensor);
    first[3] = {};
    REQUIRE_MESSAGE(ocl_tensor_write(x.tensor, twos.data(), 16 * sizeof(float)) == OCL_OK, ocl_error());
    REQUIRE(ocl_call(model, 0, &x, 1, second, 4) == OCL_OK);
    float y[8];
    REQUIRE(ocl_tensor_read(first[0].tensor, y, sizeof y) == OCL_OK);
    for (const float sum : y) CHECK(sum == 9.0f);
    REQUIRE(ocl_tensor_read(second[0].tensor, y, sizeof y) == OCL_OK);
    for (const float sum : y) CHECK(sum == 17.0f);
    CHECK(ocl_tensor_write(x.tensor, twos.data(), 8 * sizeof(float)) == OCL_BAD_INPUT);
    CHECK(std::string(ocl_error()).find("64 bytes, not 32") != std::string::npos);
    ocl_tensor_release(x.tensor);
    for (const ocl_value* results : {first, second})
      for (int i = 0; i < 4; ++i) ocl_tensor_release(results[i].kind == OCL_TENSOR ? results[i].tensor : nullptr);
  });
}

TEST_CASE_FIXTURE(Fixture, "several threads call one model") {
  for_each_model([](ocl_model* model) {
    std::vector<int> right(4, 0);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < right.size(); ++t)
      threads.emplace_back([&, t] {
        for (int64_t rows = 1; rows <= 8; ++rows) right[t] += is_right(model, rows + static_cast<int64_t>(t));
      });
    for (std::thread& thread : threads) thread.join();
    for (const int count : right) CHECK(count == 8);
  });
}

TEST_CASE("getters take NULL, and the library says its version") {
  CHECK(std::string(ocl_version()).find('.') != std::string::npos);
  CHECK(ocl_tensor_dtype(nullptr) == OCL_BOOL);
  CHECK(ocl_tensor_dims(nullptr) == -1);
  CHECK(ocl_tensor_sizes(nullptr) == nullptr);
  CHECK(ocl_tensor_bytes(nullptr) == 0);
  CHECK(ocl_method_count(nullptr) == 0);
  CHECK(ocl_method_name(nullptr, 0) == nullptr);
  CHECK(ocl_argument_count(nullptr, 0) == -1);
  CHECK(ocl_condition_count(nullptr, 0) == -1);
  CHECK(ocl_result_structure(nullptr, 0) == nullptr);
}

TEST_CASE_FIXTURE(Fixture, "options of programs with another header") {
  struct {
    ocl_options known;
    int64_t further;
  } later{{sizeof later, nullptr, nullptr, 0, 0}, 0};
  ocl_options earlier{offsetof(ocl_options, kept_bytes), nullptr, nullptr, 0, -1}, unset{};
  const auto open = [&](const ocl_options* options) {
    ocl_model* model = nullptr;
    const ocl_status status = ocl_open(path.c_str(), options, &model);
    ocl_close(model);
    return status;
  };
  if (ocl_device_count() > 0) {
    CHECK(open(&later.known) == OCL_OK);
    CHECK(open(&earlier) == OCL_OK);
  }
  later.further = 1;
  CHECK(open(&later.known) == OCL_BAD_INPUT);
  CHECK(std::string(ocl_error()).find("does not have") != std::string::npos);
  CHECK(open(&unset) == OCL_BAD_INPUT);
  CHECK(std::string(ocl_error()).find("sizeof(ocl_options)") != std::string::npos);
}

static_assert(ocl_run::dtype_of<long long>() == OCL_I64 &&
              ocl_run::dtype_of<long>() == (sizeof(long) == 8 ? OCL_I64 : OCL_I32));
static_assert(ocl_run::dtype_of<char>() == (std::is_signed_v<char> ? OCL_I8 : OCL_U8) && ocl_run::dtype_of<bool>() == OCL_BOOL);

TEST_CASE_FIXTURE(Fixture, "C++ tensors of each type come back, and are not read as another type") {
  if (ocl_device_count() == 0) return;
  const ocl_run::Model model(path);
  const auto same = [&](auto data) {
    using T = typename decltype(data)::value_type;
    const ocl_run::Tensor tensor = model.tensor({2}, data);
    CHECK(tensor.dtype() == ocl_run::dtype_of<T>());
    CHECK((tensor.read<T>() == data));
    CHECK_THROWS_AS((void)(tensor.read<std::conditional_t<std::is_same_v<T, float>, int64_t, float>>()), std::logic_error);
  };
  same(std::vector<bool>{true, false});
  same(std::vector<uint8_t>{200, 1});
  same(std::vector<signed char>{-3, 1});
  same(std::vector<short>{-3, 1});
  same(std::vector<int>{-3, 1});
  same(std::vector<long long>{-3, 1LL << 40});
  same(std::vector<float>{-0.5f, 1});
  const std::vector<uint16_t> halves{0x3c00, 0xc000};  // 1 and -2
  CHECK((model.tensor({2}, halves, OCL_F16).read<uint16_t>() == halves));
  CHECK_THROWS_AS((void)(model.tensor({2}, halves, OCL_F32)), std::logic_error);
}
