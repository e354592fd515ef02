// csrc/run/ocl_run.hpp: ocl_run.h for C++: objects that release themselves, and errors as exceptions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ocl_run.h"

namespace ocl_run {

/// An error with its status. what() says what happened and what to do.
class Error : public std::runtime_error {
 public:
  explicit Error(ocl_status status) : std::runtime_error(ocl_error()), status_(status) {}
  ocl_status status() const { return status_; }

 private:
  ocl_status status_;
};

inline void check(ocl_status status) {
  if (status != OCL_OK) throw Error(status);
}

/// Returns the ocl_dtype of a C++ type. Integers are told apart by their size and sign, so that `long long` is OCL_I64 too.
template <class T>
constexpr ocl_dtype dtype_of() {
  constexpr bool is_signed = std::is_integral_v<T> && std::is_signed_v<T>;
  constexpr bool is_byte = std::is_integral_v<T> && sizeof(T) == 1;
  constexpr bool is_real = std::is_same_v<T, float> || std::is_same_v<T, double>;
  static_assert(is_signed || is_byte || is_real,
                "packages have tensors of bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float and double; "
                "for 16-bit floats, give the ocl_dtype and use uint16_t");
  if constexpr (is_real) return sizeof(T) == sizeof(float) ? OCL_F32 : OCL_F64;
  if constexpr (std::is_same_v<T, bool>) return OCL_BOOL;
  if constexpr (is_byte) return is_signed ? OCL_I8 : OCL_U8;
  return sizeof(T) == 2 ? OCL_I16 : sizeof(T) == 4 ? OCL_I32 : OCL_I64;
}

/// Returns whether memory with elements of T can be that of a tensor. The bits of 16-bit floats are uint16_t.
template <class T>
constexpr bool holds(ocl_dtype dtype) {
  if constexpr (std::is_same_v<T, uint16_t>)
    return dtype == OCL_F16 || dtype == OCL_BF16;
  else
    return dtype == dtype_of<T>();
}

/// A tensor on a device. Copies share it.
class Tensor {
 public:
  explicit Tensor(ocl_tensor* owned) : tensor_(owned, &ocl_tensor_release) {}
  ocl_tensor* get() const { return tensor_.get(); }
  ocl_dtype dtype() const { return ocl_tensor_dtype(get()); }
  std::vector<int64_t> sizes() const {
    const int64_t* first = ocl_tensor_sizes(get());
    return {first, first + ocl_tensor_dims(get())};
  }
  /// Copies elements into the tensor, after the work that is already enqueued.
  template <class T>
  void write(const std::vector<T>& data) {
    static_assert(!std::is_same_v<T, bool>, "give std::vector<uint8_t>: the elements of vector<bool> are no array");
    if (!holds<T>(dtype()) && !(dtype() == OCL_BOOL && std::is_same_v<T, uint8_t>))
      throw std::logic_error("write<T>(): the tensor has elements of another type, see dtype()");
    check(ocl_tensor_write(get(), data.data(), data.size() * sizeof(T)));
  }
  /// Waits for the tensor and returns its elements in row-major order. std::logic_error if they have another type; uint16_t
  /// takes the bits of 16-bit floats.
  template <class T>
  std::vector<T> read() const {
    if (!holds<T>(dtype())) throw std::logic_error("read<T>(): the tensor has elements of another type, see dtype()");
    using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;  // The elements of vector<bool> are no array.
    std::vector<Stored> data(ocl_tensor_bytes(get()) / sizeof(T));
    check(ocl_tensor_read(get(), data.data(), data.size() * sizeof(T)));
    if constexpr (std::is_same_v<T, bool>)
      return {data.begin(), data.end()};
    else
      return data;
  }

 private:
  std::shared_ptr<ocl_tensor> tensor_;
};

/// An argument or a result of a method: a tensor, an integer, a real number, or nothing.
class Value {
 public:
  Value(Tensor tensor) : tensor_(std::make_shared<Tensor>(std::move(tensor))) {  // NOLINT: an argument may be a tensor
    value_.kind = OCL_TENSOR;
    value_.tensor = tensor_->get();
  }
  Value(int64_t integer) {  // NOLINT: an argument may be an integer
    value_.kind = OCL_INTEGER;
    value_.integer = integer;
  }
  /// Takes over a result of ocl_call.
  explicit Value(const ocl_value& result) : value_(result) {
    if (result.kind == OCL_TENSOR) tensor_ = std::make_shared<Tensor>(Tensor(result.tensor));
  }
  const ocl_value& get() const { return value_; }
  const Tensor& tensor() const {
    if (!tensor_) throw std::logic_error("the result is no tensor");
    return *tensor_;
  }
  int64_t integer() const { return value_.integer; }
  double real() const { return value_.real; }

 private:
  ocl_value value_{};
  std::shared_ptr<Tensor> tensor_;
};

/// A point in the work of a device, see Model::event(). Copies share it.
class Event {
 public:
  explicit Event(ocl_event* owned) : event_(owned, &ocl_event_release) {}
  ocl_event* get() const { return event_.get(); }
  bool done() const { return wait(0); }
  /// Waits at most this time, without a limit if it is below 0. Returns whether the work is done.
  bool wait(double seconds = -1) const {
    int done = 0;
    check(ocl_event_wait(get(), seconds, &done));
    return done != 0;
  }

 private:
  std::shared_ptr<ocl_event> event_;
};

/// An open package on a device.
class Model {
 public:
  explicit Model(const std::string& path, ocl_options options = {}) {
    ocl_model* opened = nullptr;
    options.size = sizeof options;
    check(ocl_open(path.c_str(), &options, &opened));
    model_.reset(opened);
  }
  ocl_model* get() const { return model_.get(); }
  /// Makes a tensor on the model's device.
  template <class T>
  Tensor tensor(const std::vector<int64_t>& sizes, const std::vector<T>& data) const {
    return tensor(sizes, data, dtype_of<T>());
  }
  /// Makes a tensor from memory of a type that C++ lacks: OCL_F16 or OCL_BF16 from their bits as uint16_t.
  template <class T>
  Tensor tensor(const std::vector<int64_t>& sizes, const std::vector<T>& data, ocl_dtype dtype) const {
    if (!holds<T>(dtype)) throw std::logic_error("tensor(): the data has elements of another type than the dtype");
    int64_t elements = 1;
    for (const int64_t size : sizes) elements *= size;
    if (elements != static_cast<int64_t>(data.size())) throw std::logic_error("the sizes do not fit the number of elements");
    ocl_tensor* made = nullptr;
    if constexpr (std::is_same_v<T, bool>) {
      const std::vector<uint8_t> bytes(data.begin(), data.end());  // The elements of vector<bool> are no array.
      check(ocl_tensor_create(get(), dtype, static_cast<int>(sizes.size()), sizes.data(), bytes.data(), &made));
    } else {
      check(ocl_tensor_create(get(), dtype, static_cast<int>(sizes.size()), sizes.data(), data.data(), &made));
    }
    return Tensor(made);
  }
  /// Enqueues a call with arguments by their paths, such as {{"x", x}, {"past.0.key", key}}, and returns the results by theirs.
  std::map<std::string, Value> call_named(const std::string& method, const std::map<std::string, Value>& arguments) const {
    int number = 0, position = 0;
    check(ocl_method_find(get(), method.c_str(), &number));
    std::vector<Value> given(arguments.size(), Value(int64_t{0}));
    for (const auto& [path, value] : arguments) {
      check(ocl_argument_find(get(), number, path.c_str(), &position));
      if (static_cast<size_t>(position) >= given.size()) throw std::logic_error("an argument before '" + path + "' is missing");
      given[static_cast<size_t>(position)] = value;
    }
    std::map<std::string, Value> named;
    const std::vector<Value> results = call(method, given);
    for (size_t i = 0; i < results.size(); ++i) {
      ocl_info info;
      check(ocl_result_info(get(), number, static_cast<int>(i), &info));
      named.emplace(info.name, results[i]);
    }
    return named;
  }
  /// Enqueues a call and returns its results. It waits for nothing.
  std::vector<Value> call(const std::string& method, const std::vector<Value>& arguments) const {
    int number = 0;
    check(ocl_method_find(get(), method.c_str(), &number));
    std::vector<ocl_value> given, results(static_cast<size_t>(ocl_result_count(get(), number)));
    for (const Value& argument : arguments) given.push_back(argument.get());
    check(ocl_call(get(), number, given.data(), static_cast<int>(given.size()), results.data(),
                   static_cast<int>(results.size())));
    return {results.begin(), results.end()};
  }
  /// Returns an event that is done when all work so far is done.
  Event event() const {
    ocl_event* made = nullptr;
    check(ocl_event_create(get(), &made));
    return Event(made);
  }
  void reset() const { check(ocl_reset(get())); }
  void synchronize() const { check(ocl_synchronize(get())); }

 private:
  struct Close {
    void operator()(ocl_model* model) const { ocl_close(model); }
  };
  std::unique_ptr<ocl_model, Close> model_;
};

}  // namespace ocl_run
