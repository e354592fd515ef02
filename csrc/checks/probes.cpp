// csrc/checks/probes.cpp: the probes of a driver: functions, integers, vectors, halves, work-groups.
#include "csrc/checks/probes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "csrc/schedule/families/case.h"

namespace ocl::checks {
namespace {

constexpr size_t kPoints = 256, kItems = 64;

/// A function of one or two floats. Arguments x are spread evenly over [low, high], or their logarithms are; y over
/// [-3.01, 3.06].
struct Function {
  const char* name;
  double low, high;
  bool logarithmic;
  double ulps;  // OpenCL 1.2, section 7.4, and a bit more. 0: exact.
  double (*exact)(double x, double y);
  const char* text = nullptr;  // The call, where it is not name(x).
};

#define OCL_UNARY(name) [](double x, double) { return std::name(x); }
#define OCL_BINARY(name) [](double x, double y) { return std::name(x, y); }, #name "(x, y)"
const Function kFunctions[] = {
    {"exp", -87, 88, false, 4, OCL_UNARY(exp)},
    {"exp2", -125, 127, false, 4, OCL_UNARY(exp2)},
    {"expm1", -20, 80, false, 4, OCL_UNARY(expm1)},
    {"log", -80, 80, true, 4, OCL_UNARY(log)},
    {"log2", -80, 80, true, 4, OCL_UNARY(log2)},
    {"log10", -80, 80, true, 4, OCL_UNARY(log10)},
    {"log1p", -30, 30, true, 4, OCL_UNARY(log1p)},
    {"sin", -100, 100, false, 5, OCL_UNARY(sin)},
    {"cos", -100, 100, false, 5, OCL_UNARY(cos)},
    {"tan", -100, 100, false, 6, OCL_UNARY(tan)},
    {"asin", -1, 1, false, 5, OCL_UNARY(asin)},
    {"acos", -1, 0.99, false, 5, OCL_UNARY(acos)},
    {"atan", -50, 50, false, 6, OCL_UNARY(atan)},
    {"sinh", -80, 80, false, 5, OCL_UNARY(sinh)},
    {"cosh", -80, 80, false, 5, OCL_UNARY(cosh)},
    {"tanh", -20, 20, false, 6, OCL_UNARY(tanh)},
    {"asinh", -50, 50, false, 5, OCL_UNARY(asinh)},
    {"acosh", 1.01, 50, false, 5, OCL_UNARY(acosh)},
    {"atanh", -0.99, 0.99, false, 6, OCL_UNARY(atanh)},
    {"erf", -5, 5, false, 17, OCL_UNARY(erf)},
    {"erfc", -5, 9, false, 17, OCL_UNARY(erfc)},
    {"lgamma", 3, 60, false, 100, OCL_UNARY(lgamma)},
    {"sqrt", -80, 80, true, 4, OCL_UNARY(sqrt)},
    {"floor", -8, 8, false, 0, OCL_UNARY(floor)},
    {"ceil", -8, 8, false, 0, OCL_UNARY(ceil)},
    {"trunc", -8, 8, false, 0, OCL_UNARY(trunc)},
    {"rint", -63.75, 63.75, false, 0, OCL_UNARY(nearbyint)},
    {"pow", -20, 20, true, 17, OCL_BINARY(pow)},
    {"atan2", -50, 50, false, 7, OCL_BINARY(atan2)},
    {"hypot", -50, 50, false, 5, OCL_BINARY(hypot)},
    {"fmod", -50, 50, false, 0, OCL_BINARY(fmod)},
    {"copysign", -50, 50, false, 0, OCL_BINARY(copysign)},
    {"fmin", -5, 5, false, 0, OCL_BINARY(fmin)},
    {"fmax", -5, 5, false, 0, OCL_BINARY(fmax)},
    // What a product loses in rounding, which two operations would not find.
    {"fma", -50, 50, false, 0, [](double x, double y) { return x * y - static_cast<float>(x * y); }, "fma(x, y, -(x * y))"},
    {"isnan", -5, 5, false, 0, [](double x, double) { return x < 0 ? 1.0 : 0.0; }, "isnan(sqrt(x)) ? 1.0f : 0.0f"},
    {"isinf", -5, 5, false, 0, [](double x, double) { return x < 0 ? 1.0 : 0.0; },
     "isinf(x < 0.0f ? -INFINITY : x) ? 1.0f : 0.0f"},
    {"signbit", -5, 5, false, 0, [](double x, double) { return x < 0 ? 1.0 : 0.0; }, "signbit(x) ? 1.0f : 0.0f"},
};
#undef OCL_UNARY
#undef OCL_BINARY

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Adds a probe with exact results, or with results within `tolerance` times their size.
Probe& add(ProbeProgram& program, const std::string& name, std::vector<std::string> words, std::vector<std::string> inputs,
           std::vector<runtime::TrialLaunch::Integer> integers, std::vector<double> exact, double tolerance = 0) {
  Probe probe;
  probe.words = std::move(words);
  probe.run.name = name;
  probe.run.tolerance = tolerance;
  for (const double value : exact) probe.run.sizes.push_back(std::fabs(value) + 1e-37);
  probe.run.exact = std::move(exact);
  runtime::TrialLaunch& launch = probe.run.launch;
  const size_t count = probe.run.exact.size();
  for (std::string& input : inputs) launch.inputs.push_back({std::move(input), 0, {}});
  launch.integers = std::move(integers);
  launch.results = {count};
  launch.local = std::min(kItems, count);
  launch.groups = {count / launch.local, 1, 1};
  program.probes.push_back(std::move(probe));
  return program.probes.back();
}

std::string kernel(const std::string& parameters, const std::string& body) {
  return "__kernel void checked_kernel(" + parameters + ", __global float* out, const ulong out_offset) {\n" + body + "}\n";
}

/// The functions, in several programs, which compile at the same time.
void add_functions(std::vector<ProbeProgram>& programs) {
  constexpr size_t kPrograms = 3;
  for (size_t part = 0; part < kPrograms; ++part) {
    ProbeProgram& program = programs.emplace_back();
    std::string cases;
    for (size_t f = part; f < std::size(kFunctions); f += kPrograms) {
      const Function& function = kFunctions[f];
      const std::string call = function.text ? function.text : std::string(function.name) + "(x)";
      cases += "    case " + std::to_string(f) + ": r = " + call + "; break;\n";
      std::vector<float> x, y;
      std::vector<double> exact;
      for (size_t i = 0; i < kPoints; ++i) {
        const double at = function.low + (function.high - function.low) * static_cast<double>(i) / (kPoints - 1);
        x.push_back(static_cast<float>(function.logarithmic ? std::exp(at) : at));
        y.push_back(static_cast<float>(static_cast<double>(i * 37 % 256) / 42.0 - 3.01));
        exact.push_back(function.exact(x.back(), y.back()));
      }
      add(program, function.name, {function.name}, {bytes_of(x), bytes_of(y)}, {static_cast<int32_t>(f)}, std::move(exact),
          function.ulps * 0x1p-23);
    }
    program.text =
        kernel("__global const float* a, const ulong a_offset, __global const float* b, const ulong b_offset, const int which",
               "  const float x = a[a_offset + get_global_id(0)], y = b[b_offset + get_global_id(0)];\n  float r = 0.0f;\n"
               "  switch (which) {\n" +
                   cases + "  }\n  out[out_offset + get_global_id(0)] = r;\n");
  }
}

/// Sums and products, and integers of 32 and 64 bits.
void add_numbers(std::vector<ProbeProgram>& programs) {
  ProbeProgram& program = programs.emplace_back();
  program.text = kernel("__global const int* a, const ulong a_offset, const int which, long stride",
                        R"(  const int i = get_global_id(0), x = a[a_offset + i];
  const long at = i * stride, low = at & 0xffff, high = at >> 32;
  float r = 0.0f;
  switch (which) {
    case 0: r = (float)x * 0.5f + 1.0f - (float)i; break;
    case 1: r = (float)(mul_hi((uint)x, 0xD2511F53u) >> 16) + (float)(mul_hi((uint)x, 0xD2511F53u) & 0xffff); break;
    case 2: r = (float)(low + high % 4099); break;
    case 3: r = (float)(x / 7 * 16 + x % 7); break;
    case 4: r = (float)((x >> 3) ^ (int)((uint)x >> 28) ^ (x & 255)); break;
  }
  out[out_offset + i] = r;
)");
  std::vector<int32_t> x;
  for (size_t i = 0; i < kPoints; ++i) x.push_back((static_cast<int32_t>(i) - 128) * 8011);
  constexpr int64_t kStride = 0x100000013;
  const std::function<double(int64_t, int64_t)> exact[] = {
      [](int64_t value, int64_t i) { return static_cast<double>(value) / 2 + 1 - static_cast<double>(i); },
      [](int64_t value, int64_t) {
        const uint64_t high = uint64_t{static_cast<uint32_t>(value)} * 0xD2511F53u >> 32;
        return static_cast<double>((high >> 16) + (high & 0xffff));
      },
      [](int64_t, int64_t i) { return static_cast<double>((i * kStride & 0xffff) + (i * kStride >> 32) % 4099); },
      [](int64_t value, int64_t) { return static_cast<double>(value / 7 * 16 + value % 7); },
      [](int64_t value, int64_t) {
        const auto number = static_cast<int32_t>(value);
        return static_cast<double>((number >> 3) ^ static_cast<int32_t>(static_cast<uint32_t>(number) >> 28) ^ (number & 255));
      }};
  const std::pair<const char*, std::vector<std::string>> names[] = {
      {kPlain, {}}, {"mul_hi", {"mul_hi"}}, {"long integers", {"long"}}, {"division of integers", {}}, {"shifts", {}}};
  for (int32_t which = 0; which < 5; ++which) {
    std::vector<double> results;
    for (size_t i = 0; i < kPoints; ++i) results.push_back(exact[which](x[i], static_cast<int64_t>(i)));
    add(program, names[which].first, names[which].second, {bytes_of(x)}, {which, kStride}, std::move(results));
  }
}

/// Loads and stores of vectors at addresses that are no multiples of their size.
void add_vectors(std::vector<ProbeProgram>& programs) {
  ProbeProgram& program = programs.emplace_back();
  std::string cases;
  std::vector<float> x(kItems * 16 + 1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.25f;
  for (const int32_t width : {2, 3, 4, 8, 16}) {
    const std::string n = std::to_string(width);
    cases += "    case " + n + ": vstore" + n + "(vload" + n + "(i, a + a_offset) * 2.0f, i, out + out_offset); break;\n";
    std::vector<double> exact;
    for (size_t i = 0; i < kItems * static_cast<size_t>(width); ++i) exact.push_back(2.0 * x[i + 1]);
    Probe& probe =
        add(program, "vload" + n + " and vstore" + n, {"vload" + n, "vstore" + n}, {bytes_of(x)}, {width}, std::move(exact));
    probe.run.launch.inputs[0].offset = 1;
    probe.run.launch.local = kItems;
    probe.run.launch.groups = {1, 1, 1};
  }
  program.text = kernel("__global const float* a, const ulong a_offset, const int width",
                        "  const size_t i = get_global_id(0);\n  switch (width) {\n" + cases + "  }\n");
}

void add_halves(std::vector<ProbeProgram>& programs) {
  ProbeProgram& program = programs.emplace_back();
  program.text = kernel("__global const float* a, const ulong a_offset",
                        R"(  const size_t i = get_global_id(0);
  ushort bits = 0;
  vstore_half_rte(a[a_offset + i], 0, (__private half*)&bits);
  out[out_offset + i] = vload_half(0, (const __private half*)&bits);
)");
  std::vector<float> x;
  std::vector<double> exact;
  for (size_t i = 0; i < kPoints; ++i) {
    x.push_back(std::ldexp(static_cast<float>(4097 + 2 * i) * (i % 2 == 0 ? 1.0f : -1.0f), static_cast<int>(i % 32) - 31));
    exact.push_back(schedule::rounded(x.back(), ir::DType::kF16));
  }
  std::vector<std::string> words;
  for (const char* n : {"", "2", "4", "8", "16"})
    for (const std::string& word : {"vload_half" + std::string(n), "vstore_half" + std::string(n) + "_rte"})
      words.push_back(word);
  add(program, kHalves, std::move(words), {bytes_of(x)}, {}, std::move(exact)).unless = "ocl_half_store";
}

/// Barriers, local memory and atomics of work-groups.
void add_groups(std::vector<ProbeProgram>& programs) {
  const std::string parameters = "__global int* a, const ulong a_offset, const int rounds";
  std::vector<int32_t> x(kPoints);
  for (size_t i = 0; i < kPoints; ++i) x[i] = static_cast<int32_t>(i * 2654435761u % 1000);
  constexpr int32_t kRounds = 9;

  ProbeProgram& barriers = programs.emplace_back();
  barriers.text = kernel(parameters, R"(  __local int shared[64];
  const int lane = get_local_id(0);
  int x = a[a_offset + get_global_id(0)];
  for (int round = 0; round < rounds; ++round) {
    shared[lane] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    x = (shared[63 - lane] * 3 + shared[(lane + 17) % 64] + round) & 0xffff;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  out[out_offset + get_global_id(0)] = (float)x;
)");
  std::vector<int32_t> now = x;
  for (int32_t round = 0; round < kRounds; ++round) {
    const std::vector<int32_t> old = now;
    for (size_t i = 0; i < kPoints; ++i) {
      const size_t lane = i % kItems, base = i - lane;
      now[i] = (old[base + kItems - 1 - lane] * 3 + old[base + (lane + 17) % kItems] + round) & 0xffff;
    }
  }
  add(barriers, kBarriers, {"barrier"}, {bytes_of(x)}, {kRounds}, {now.begin(), now.end()});

  ProbeProgram& local = programs.emplace_back();
  local.text = kernel(parameters, R"(  __local float4 first[256];
  __local int second[1024];
  const int lane = get_local_id(0), x = a[a_offset + get_global_id(0)];
  for (int i = lane; i < 256; i += 64) first[i] = (float4)(x, i, x + i, x - i);
  for (int i = lane; i < 1024; i += 64) second[i] = -x - i;
  barrier(CLK_LOCAL_MEM_FENCE);
  float sum = 0.0f;
  for (int i = 0; i < 256; i += rounds) sum += first[i].x + first[i].y - first[i].w + (float)second[4 * i + lane % 4];
  out[out_offset + get_global_id(0)] = sum;
)");
  std::vector<double> sums;
  for (size_t i = 0; i < kPoints; ++i) {
    const size_t lane = i % kItems, base = i - lane;
    double sum = 0;
    for (size_t at = 0; at < 256; at += kRounds) {
      const size_t place = 4 * at + lane % 4;
      sum += 2.0 * static_cast<double>(at) - x[base + place % kItems] - static_cast<double>(place);
    }
    sums.push_back(sum);
  }
  add(local, kLocalMemory, {"__local"}, {bytes_of(x)}, {kRounds}, std::move(sums));

  ProbeProgram& atomics = programs.emplace_back();
  atomics.text = kernel(parameters, R"(  const int lane = get_local_id(0);
  volatile __global int* cells = (volatile __global int*)(a + a_offset);
  for (int round = 0; round < rounds; ++round) atomic_max(cells + lane % 4, lane * rounds + round);
  barrier(CLK_GLOBAL_MEM_FENCE);
  out[out_offset + lane] = (float)cells[lane % 4];
)");
  std::vector<double> largest;
  for (size_t lane = 0; lane < kItems; ++lane)
    largest.push_back(static_cast<double>((kItems - 4 + lane % 4) * kRounds + kRounds - 1));
  add(atomics, "atomic_max", {"atomic_max"}, {bytes_of(std::vector<int32_t>(4))}, {kRounds}, std::move(largest));
}

}  // namespace

const std::vector<ProbeProgram>& probe_programs() {
  static const auto* programs = [] {
    auto* all = new std::vector<ProbeProgram>;
    add_functions(*all);
    add_numbers(*all);
    add_vectors(*all);
    add_halves(*all);
    add_groups(*all);
    return all;
  }();
  return *programs;
}

}  // namespace ocl::checks
