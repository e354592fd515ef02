// tests/cpp/test_ocl_run_opencl.cpp: a program with OpenCL of its own runs a package in its context and queue: buffers without
// copies, events and waits, on every device. The program's objects are those of a second copy of the runtime.
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "csrc/run/ocl_run.h"
#include "csrc/run/ocl_run.hpp"
#include "csrc/runtime/queues/gate.h"
#include "csrc/support/path.h"
#include "tests/cpp/runtime_devices.h"
#include "tests/cpp/temporary_folder.h"
#include "tests/cpp/written_package.h"

using namespace ocl;
using namespace ocl::runtime;

namespace {

constexpr size_t kBytes = 16 * sizeof(float);
constexpr int64_t kSizes[] = {2, 8};

MemHandle buffer(cl_context context, cl_mem_flags flags = CL_MEM_READ_WRITE) {
  cl_int status = CL_SUCCESS;
  MemHandle made(clCreateBuffer(context, flags, kBytes, nullptr, &status));
  REQUIRE(status == CL_SUCCESS);
  return made;
}

cl_uint references(cl_mem memory) {
  cl_uint count = 0;
  REQUIRE(clGetMemObjectInfo(memory, CL_MEM_REFERENCE_COUNT, sizeof count, &count, nullptr) == CL_SUCCESS);
  return count;
}

void release(const ocl_value* results) {
  for (int i = 0; i < 4; ++i) ocl_tensor_release(results[i].kind == OCL_TENSOR ? results[i].tensor : nullptr);
}

/// Opens the written package on the device of `own`.
ocl_run::Model open_on(const ocl_opencl& own, const std::string& path) {
  int number = -1;
  REQUIRE_MESSAGE(ocl_opencl_share(&own, &number) == OCL_OK, ocl_error());
  const std::string device = std::to_string(number);
  ocl_options options{};
  options.device = device.c_str();
  return ocl_run::Model(path, options);
}

void check_buffers(Device& device, ocl_model* model) {
  Queue& queue = device.queue();
  const MemHandle x = buffer(device.context()), y = buffer(device.context());
  const cl_uint before = references(x.get());
  ocl_value argument{OCL_TENSOR, nullptr, 0, 0}, results[4];
  REQUIRE_MESSAGE(ocl_tensor_wrap(model, OCL_F32, 2, kSizes, x.get(), 0, &argument.tensor) == OCL_OK, ocl_error());
  CHECK(references(x.get()) > before);
  REQUIRE_MESSAGE(ocl_call(model, 0, &argument, 1, results, 4) == OCL_OK, ocl_error());  // Builds the kernels.
  release(results);

  // Nothing behind the gate can start before it is open: the program's fill, the call, and the program's copy of the result.
  Gate gate(queue);
  const float one = 1;
  queue.fill(x.get(), 0, kBytes, &one, sizeof one);
  REQUIRE_MESSAGE(ocl_call(model, 0, &argument, 1, results, 4) == OCL_OK, ocl_error());
  cl_mem result = nullptr;
  size_t offset = 0;
  REQUIRE_MESSAGE(ocl_tensor_memory(results[0].tensor, &result, &offset) == OCL_OK, ocl_error());
  queue.copy(result, offset, y.get(), 0, 8 * sizeof(float));
  ocl_event* event = nullptr;
  REQUIRE_MESSAGE(ocl_event_create(model, &event) == OCL_OK, ocl_error());
  int done = -1;
  CHECK(ocl_event_wait(event, 0, &done) == OCL_OK);
  CHECK(done == 0);
  const auto start = std::chrono::steady_clock::now();
  CHECK(ocl_event_wait(event, 0.05, &done) == OCL_OK);
  CHECK(done == 0);
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(50));
  gate.open();
  CHECK_MESSAGE(ocl_event_wait(event, 60, &done) == OCL_OK, ocl_error());
  CHECK(done == 1);
  done = 0;
  CHECK(ocl_event_wait(event, 0, &done) == OCL_OK);
  CHECK(done == 1);
  CHECK(ocl_event_wait(event, -1, nullptr) == OCL_OK);
  CHECK(ocl_event_wait(event, 1, nullptr) == OCL_BAD_INPUT);
  cl_int status = CL_QUEUED;
  CHECK(clGetEventInfo(ocl_event_opencl(event), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr) ==
        CL_SUCCESS);
  CHECK(status == CL_COMPLETE);
  ocl_event_release(event);

  std::vector<float> sums(8);
  queue.read(y.get(), 0, sums.data(), sums.size() * sizeof(float), true);
  for (const float sum : sums) CHECK(sum == 9);
  release(results);
  ocl_tensor_release(argument.tensor);
  CHECK(references(x.get()) == before);
}

void check_wait(Device& device, const ocl_run::Model& model) {
  Queue& other = device.queue(device.next_stream());
  Gate gate(other);
  const EventHandle marker = other.marker();
  REQUIRE_MESSAGE(ocl_opencl_wait(model.get(), marker.get()) == OCL_OK, ocl_error());
  const ocl_run::Event event = model.event();
  CHECK(!event.done());
  gate.open();
  CHECK(event.wait(60));
}

void check_refusals(Device& device, ocl_model* model) {
  ocl_tensor* tensor = nullptr;
  const auto refuses = [&](cl_mem memory, size_t offset, const std::string& words) {
    CHECK(ocl_tensor_wrap(model, OCL_F32, 2, kSizes, memory, offset, &tensor) == OCL_BAD_INPUT);
    CHECK_MESSAGE(std::string(ocl_error()).find(words) != std::string::npos, ocl_error());
  };
  cl_int status = CL_SUCCESS;
  const cl_device_id id = device.id();
  const ContextHandle other(clCreateContext(nullptr, 1, &id, nullptr, nullptr, &status));
  REQUIRE(status == CL_SUCCESS);
  refuses(buffer(other.get()).get(), 0, "another context");
  refuses(buffer(device.context(), CL_MEM_READ_ONLY).get(), 0, "read-only");
  refuses(buffer(device.context()).get(), 4, "64 bytes; the tensor needs 64 from byte 4 on");
  cl_mem memory = nullptr;
  size_t offset = 0;
  CHECK(ocl_tensor_memory(nullptr, &memory, &offset) == OCL_BAD_INPUT);

  int number = -1;
  const ocl_opencl late{other.get(), id, nullptr}, wrong{other.get(), id, device.queue().get()}, none{};
  CHECK(ocl_opencl_share(&late, &number) == OCL_BAD_INPUT);
  CHECK(std::string(ocl_error()).find("before the first model is opened") != std::string::npos);
  CHECK(ocl_opencl_share(&wrong, &number) == OCL_BAD_INPUT);
  CHECK(std::string(ocl_error()).find("another context or device") != std::string::npos);
  CHECK(ocl_opencl_share(&none, &number) == OCL_BAD_INPUT);
}

}  // namespace

TEST_CASE("a package runs in the program's context and queue") {
  const std::string folder = new_folder("ocl_run_opencl"), path = folder + "/model.ocl";
  write_package(path, graph_text());
  for (const std::string& runtime : test_vendor_libraries()) ocl_add_runtime(runtime.c_str());
  for_each_device([&](Device& device) {
    const ocl_opencl own{device.context(), device.id(), device.queue().get()};
    const ocl_run::Model model = open_on(own, path);
    ocl_opencl found{};
    REQUIRE(ocl_opencl_get(model.get(), &found) == OCL_OK);
    CHECK(found.context == own.context);
    CHECK(found.device == own.device);
    CHECK(found.queue == own.queue);
    int again = -1;
    CHECK(ocl_opencl_share(&own, &again) == OCL_OK);
    check_buffers(device, model.get());
    check_wait(device, model);
    check_refusals(device, model.get());
  });
  std::filesystem::remove_all(path_of(folder));
}
