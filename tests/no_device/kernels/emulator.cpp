// tests/no_device/kernels/emulator.cpp: runs a work-group of a kernel for tensor cores on the host, with tensor cores and
// barriers in software.
//
// Work-items are coroutines of one thread. A work-item runs until it waits, then the next one runs. All of them get a
// turn in ascending order, then in descending order, and so on. So every run is the same, and a deadlock is found at
// once.
//
// A copy by cp.async is made when the work-item waits for the group of the copy. Fences do nothing, so a missing fence
// is not found. Tensor cores read local memory in the order that the PTX manual gives for descriptors with the 128-byte
// swizzle. Element (row, k) of an operand is at this offset in bytes:
//   K contiguous:      row%8 * 128 + row/8 * stride + k * size      stride: 1024 here, from the descriptor
//   rows contiguous:   row%64 * size + row/64 * leading + k%8 * 128 + k/8 * stride
// Bits 4-6 of the offset are then replaced by their exclusive or with bits 7-9.
//
// Build: this file and the objects of the kernels; see test_emulated_kernels.py.
#include <sys/mman.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

using uint = unsigned;
using ulong = unsigned long;

// The work-items of a warp or subgroup.
#if defined(MATRIX_DPAS)
#define LANES_HOST MATRIX_DPAS
#elif defined(MATRIX_MFMA)
#define LANES_HOST 64
#else
#define LANES_HOST 32
#endif

// Packed operands of fp32 reach the tensor cores as pairs of fp16.
#if defined(PACKED) && !HALVES_HOST && TERMS == 3
#define MULTIPLIED_T_HOST uint16_t
#define MULTIPLIED_HALF
#else
#define MULTIPLIED_T_HOST OPERAND_T_HOST
#endif
#ifdef IN_HALF
#define MULTIPLIED_HALF
#endif

struct Copy {
  uint to;
  const char* from;
  uint bytes, most, group;
};
struct Item {
  size_t local = 0, group[3] = {0, 0, 0};
  uint groups_ended = 0;
  std::deque<Copy> copies;
};
static size_t g_groups[3], g_items;

// ---- coroutines ----
struct Coroutine {
  ucontext_t context;
  void* stack;
  Item item;
  bool ended;
};
static std::vector<Coroutine> g_coroutines;
static Coroutine* g_now;
static ucontext_t g_scheduler;
// The number of events that may end another work-item's wait. If it does not change in a turn, the work-items are
// deadlocked.
static ulong g_progress;
static void let_others_run() { swapcontext(&g_now->context, &g_scheduler); }
static Item& self() { return g_now->item; }

// A barrier for `members` work-items, of which `here` wait now.
struct Meeting {
  uint members = 0, here = 0, round = 0;
  void wait() {
    const uint before = round;
    ++g_progress;
    if (++here == members) {
      here = 0;
      ++round;
    }
    while (round == before) let_others_run();
  }
};
static Meeting g_all, g_warpgroup[8], g_warp[64];

// An mbarrier of PTX: a phase ends when `expected` work-items have arrived and all announced bytes are copied.
struct Bar {
  uint expected = 0, pending = 0, phase = 0;
  // The number of announced bytes that are not copied yet.
  long bytes = 0;
  void end_phase() {
    ++g_progress;
    if (pending != 0 || bytes != 0) return;
    pending = expected;
    phase ^= 1;
  }
};
static Bar g_bars[4096];

static void land(uint but) {
  while (!self().copies.empty() && self().copies.front().group + but < self().groups_ended) {
    const Copy c = self().copies.front();
    self().copies.pop_front();
    char* to = reinterpret_cast<char*>(static_cast<uintptr_t>(c.to));
    if (c.to % c.most || (c.bytes && reinterpret_cast<uintptr_t>(c.from) % c.most)) std::abort();
    std::memset(to, 0, c.most);
    std::memcpy(to, c.from, c.bytes);
  }
}

static float widen(const char* at) {
#ifdef IN_BF16
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
#elif defined(MULTIPLIED_HALF)
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  const int e = bits >> 10 & 31, m = bits & 1023;
  const float x = e ? __builtin_ldexpf(1024 + m, e - 25) : __builtin_ldexpf(m, -24);
  return bits >> 15 ? -x : x;
#else
  uint32_t bits;
  std::memcpy(&bits, at, 4);
  bits &= 0xFFFFE000u;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
#endif
}

/// Returns the bits of x rounded to the operands' 16-bit type, to nearest, ties to even.
static uint16_t narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
#ifdef MULTIPLIED_HALF
  const int e = static_cast<int>(bits >> 23 & 255) - 127;
  // The exponent of the last place: -24 for subnormal numbers.
  const int digits = e < -14 ? -24 : e - 10;
  const float rounded = __builtin_ldexpf(__builtin_rintf(__builtin_ldexpf(x, -digits)), digits);
  std::memcpy(&bits, &rounded, 4);
  if (std::fabs(rounded) < 0x1p-14f)
    return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<uint32_t>(std::fabs(rounded) * 0x1p24f));
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
#else
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
#endif
}

static float element(ulong descriptor, int row, int k, bool columns) {
  const uint start = static_cast<uint>(descriptor & 0x3FFF) << 4, leading = static_cast<uint>(descriptor >> 16 & 0x3FFF) << 4;
  const uint stride = static_cast<uint>(descriptor >> 32 & 0x3FFF) << 4;
  if (descriptor >> 62 != 1) std::abort();
  const int size = sizeof(MULTIPLIED_T_HOST);
  uint at = start + (columns ? row % 64 * size + row / 64 * leading + k % 8 * 128 + k / 8 * stride
                             : row % 8 * 128 + row / 8 * stride + k * size);
  at ^= (at >> 7 & 7) << 4;
  // Descriptors contain only the lowest 18 bits of the address.
  extern char* g_local_base;
  const uintptr_t base = reinterpret_cast<uintptr_t>(g_local_base);
  uintptr_t address = (base & ~uintptr_t{0x3FFFF}) | at;
  if (address < base) address += 0x40000;
  return widen(reinterpret_cast<const char*>(address));
}
char* g_local_base = nullptr;
#if defined(MATRIX_DPAS) || defined(MATRIX_MFMA) || defined(MATRIX_WMMA)
#include "tests/no_device/kernels/emulator_matrix.h"
#endif
#include "tests/no_device/kernels/emulator_boxes.h"

extern "C" {
ulong emulated_barrier(uint bar, uint what, uint value) {
  if (what == 3) return 0;
  if (what == 4) return g_warpgroup[self().local / 128].wait(), 0;
  if (what == 6) return g_warp[self().local / 32].wait(), 0;
  Bar& b = g_bars[bar / 8 % 4096];
  if (what == 0) {
    b = {value, value, 0, 0};
  } else if (what == 1 || what == 5) {
    if (b.pending == 0) std::abort();
    if (what == 5) b.bytes += value;
    --b.pending;
    b.end_phase();
  } else {
    while (b.phase == value) let_others_run();
  }
  return 0;
}
void emulated_copy(uint to, const void* from, uint bytes, uint most) {
  self().copies.push_back({to, static_cast<const char*>(from), bytes, most, self().groups_ended});
}
void emulated_copies(int wait, uint but) {
#if HALVES_HOST || defined(WARP_M)
  if (!wait) ++self().groups_ended;
  if (wait) land(but);
#else
  ++self().groups_ended;
  land(0);
#endif
}
void emulated_block(uint to, const void* from, uint bytes, uint bar) {
  if (to % 16 || reinterpret_cast<uintptr_t>(from) % 16 || bytes % 16) std::abort();
  std::memcpy(reinterpret_cast<void*>(static_cast<uintptr_t>(to)), from, bytes);
  Bar& b = g_bars[bar / 8 % 4096];
  b.bytes -= bytes;
  b.end_phase();
}
void emulated_multiply(float* d, const uint* a, ulong a_at, ulong b_at, uint columns, uint keep, uint a_columns,
                       uint b_columns) {
  const int depth = 32 / sizeof(MULTIPLIED_T_HOST), lane = self().local % 32, warp = self().local / 32 % 4,
            warpgroup = self().local / 128;
  // The number of elements in a 32-bit register.
  constexpr int kPart = 4 / sizeof(MULTIPLIED_T_HOST);
  static float fragments[4][64][16];
  if (a) {
    g_warpgroup[warpgroup].wait();
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < kPart; ++e)
        fragments[warpgroup][warp * 16 + lane / 4 + (i & 1) * 8][(lane % 4 + (i >> 1) * 4) * kPart + e] =
            widen(reinterpret_cast<const char*>(&a[i]) + e * sizeof(MULTIPLIED_T_HOST));
    g_warpgroup[warpgroup].wait();
  }
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + lane / 4 + half * 8;
    float x[16];
    for (int k = 0; k < depth; ++k) x[k] = a ? fragments[warpgroup][row][k] : element(a_at, row, k, a_columns);
    for (int j = 0; j < static_cast<int>(columns) / 8; ++j)
      for (int e = 0; e < 2; ++e) {
        float sum = keep ? d[4 * j + 2 * half + e] : 0.0f;
        for (int k = 0; k < depth; ++k) sum += x[k] * element(b_at, j * 8 + lane % 4 * 2 + e, k, b_columns);
        d[4 * j + 2 * half + e] = sum;
      }
  }
}
/// ldmatrix, which reads four 8 x 16-byte matrices. Lane l provides the address of row l % 8 of matrix l / 8. Of each
/// matrix it gets bytes 4 * (l % 4) to 4 * (l % 4) + 3 of row l / 4. With `columns` (elements have 16 bits) it gets
/// rows 2 * (l % 4) and 2 * (l % 4) + 1 of column l / 4 instead.
void emulated_rows(uint* x, uint row, uint columns) {
  static uint rows[16][32];
  const int warp = self().local / 32, lane = self().local % 32;
  if (row % 16) std::abort();
  rows[warp][lane] = row;
  g_warp[warp].wait();
  const auto bytes = [&](int i, int at_row, int at, int count) {
    uint value = 0;
    std::memcpy(&value, reinterpret_cast<const char*>(static_cast<uintptr_t>(rows[warp][8 * i + at_row])) + at, count);
    return value;
  };
  for (int i = 0; i < 4; ++i)
    x[i] = columns ? bytes(i, lane % 4 * 2, lane / 4 * 2, 2) | bytes(i, lane % 4 * 2 + 1, lane / 4 * 2, 2) << 16
                   : bytes(i, lane / 4, lane % 4 * 4, 4);
  g_warp[warp].wait();
}
/// mma.sync m16n8: d = A B, plus d if `keep`. A row of A and a column of B have two 16-byte chunks along K. Of a chunk,
/// lane l has bytes 4 * (l % 4) to 4 * (l % 4) + 3:
///   a[0], a[1]   first chunk of rows l / 4 and l / 4 + 8
///   a[2], a[3]   second chunk of these rows
///   b[0], b[1]   first and second chunk of column l / 4
///   d[0], d[1]   row l / 4, columns 2 * (l % 4) and 2 * (l % 4) + 1
///   d[2], d[3]   row l / 4 + 8, the same columns
void emulated_product(float* d, const uint* a, const uint* b, uint keep) {
  constexpr int kPart = 4 / sizeof(OPERAND_T_HOST), kDepth = 8 * kPart;
  static float left[16][16][16], right[16][16][8];
  const int warp = self().local / 32, row = self().local % 32 / 4, four = self().local % 4;
  for (int i = 0; i < 4; ++i)
    for (int e = 0; e < kPart; ++e) {
      const int depth = (four + i / 2 * 4) * kPart + e;
      left[warp][row + i % 2 * 8][depth] = widen(reinterpret_cast<const char*>(&a[i]) + e * sizeof(OPERAND_T_HOST));
      if (i % 2 == 0) right[warp][depth][row] = widen(reinterpret_cast<const char*>(&b[i / 2]) + e * sizeof(OPERAND_T_HOST));
    }
  g_warp[warp].wait();
  for (int i = 0; i < 4; ++i) {
    float sum = keep ? d[i] : 0.0f;
    for (int k = 0; k < kDepth; ++k) sum += left[warp][row + i / 2 * 8][k] * right[warp][k][four * 2 + i % 2];
    d[i] = sum;
  }
  g_warp[warp].wait();
}
uint emulated_halves(float first, float second) { return narrow(first) | static_cast<uint>(narrow(second)) << 16; }
float emulated_value(uint both, uint upper) { return widen(reinterpret_cast<const char*>(&both) + 2 * upper); }
float emulated_exp2(float x) { return std::exp2(x); }
float emulated_lane(float x, uint bit) {
  static float values[16][32];
  const int warp = self().local / 32, own = self().local % 32;
  values[warp][own] = x;
  g_warp[warp].wait();
  const float y = values[warp][own ^ bit];
  g_warp[warp].wait();
  return y;
}
size_t get_local_id(uint) asm("_Z12get_local_idj");
size_t get_local_id(uint) { return self().local; }
size_t get_group_id(uint d) asm("_Z12get_group_idj");
size_t get_group_id(uint d) { return self().group[d]; }
size_t get_num_groups(uint d) asm("_Z14get_num_groupsj");
size_t get_num_groups(uint d) { return g_groups[d]; }
size_t get_global_size(uint d) asm("_Z15get_global_sizej");
size_t get_global_size(uint d) { return g_groups[d] * (d == 0 ? g_items : 1); }
void work_barrier(uint) asm("_Z7barrierj");
void work_barrier(uint) { g_all.wait(); }
uint mul_high(uint, uint) asm("_Z6mul_hijj");
uint mul_high(uint a, uint b) { return static_cast<uint>(static_cast<ulong>(a) * b >> 32); }
float log2_of(float) asm("_Z4log2f");
float log2_of(float x) { return std::log2(x); }
void local_begins(char* p) { g_local_base = p; }
}

/// Runs call() for every work-item, one work-group after another.
template <typename F>
void launch(size_t x, size_t y, size_t z, size_t items, F call) {
  constexpr size_t kStack = 1 << 18;
  static F* called;
  called = &call;
  g_groups[0] = x, g_groups[1] = y, g_groups[2] = z, g_items = items;
  g_coroutines.resize(items);
  for (Coroutine& c : g_coroutines)
    c.stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (size_t g = 0; g < x * y * z; ++g) {
    g_all = {static_cast<uint>(items)};
    for (Meeting& m : g_warpgroup) m = {128};
    for (Meeting& m : g_warp) m = {LANES_HOST};
    for (size_t i = 0; i < items; ++i) {
      Coroutine& c = g_coroutines[i];
      c.item = {i, {g % x, g / x % y, g / x / y}, 0, {}};
      c.ended = false;
      getcontext(&c.context);
      c.context.uc_stack.ss_sp = c.stack;
      c.context.uc_stack.ss_size = kStack;
      c.context.uc_link = &g_scheduler;
      makecontext(
          &c.context,
          [] {
            (*called)();
            g_now->ended = true;
            ++g_progress;
          },
          0);
    }
    size_t left = items;
    for (bool backwards = false; left > 0; backwards = !backwards) {
      const ulong before = g_progress;
      for (size_t i = 0; i < items; ++i) {
        g_now = &g_coroutines[backwards ? items - 1 - i : i];
        if (g_now->ended) continue;
        swapcontext(&g_scheduler, &g_now->context);
        left -= g_now->ended;
      }
      if (left == 0 || g_progress != before) continue;
      std::printf("%zu work-items of group %zu wait for one another, the first is", left, g);
      for (const Coroutine& c : g_coroutines)
        if (!c.ended) return std::printf(" %zu\n", c.item.local), std::fflush(stdout), std::exit(1);
    }
  }
  for (Coroutine& c : g_coroutines) munmap(c.stack, kStack);
}

// ---- launches ----
// The kernels of a case. Those that pack operands need not exist.
extern "C" void k();
extern "C" void __attribute__((weak)) pack_0();
extern "C" void __attribute__((weak)) pack_1();

/// The number of floats in front of a launch's results, and behind them, that a kernel must not write.
static constexpr size_t kGuard = 64;
/// The most arguments of a kernel. All are passed in 64 bits, as the host's calling convention passes integers and pointers.
static constexpr size_t kMostArguments = 64;

static std::vector<char> bytes_of(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) std::abort();
  return {std::istreambuf_iterator<char>(file), {}};
}

template <size_t... I>
static void call(void (*kernel)(), const std::vector<long>& arguments, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(decltype(static_cast<long>(I))...)>(kernel)(arguments[I]...);
}

/// Returns the number of results that differ from `exact` by more than `tolerance` times their size, or lie in a guard.
static long count_wrong(const std::vector<float>& got, double tolerance) {
  const auto exact = bytes_of("exact"), sizes = bytes_of("sizes");
  const auto *want = reinterpret_cast<const double*>(exact.data()), *size = reinterpret_cast<const double*>(sizes.data());
  if (exact.size() / sizeof(double) + 2 * kGuard != got.size()) return -1;
  long wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool guard = i < kGuard || i >= got.size() - kGuard;
    if (guard ? got[i] != got[i] : std::fabs(got[i] - want[i - kGuard]) <= tolerance * size[i - kGuard]) continue;
    if (wrong++ < 5)
      std::printf("result %ld: %g, not %g\n", static_cast<long>(i - kGuard), got[i], guard ? NAN : want[i - kGuard]);
  }
  return wrong;
}

/// Reads commands, each with its operands: buffer FILE OFFSET, integer VALUE, output COUNT, and packed NUMBER (the results of
/// an earlier launch) are the arguments of the next launch NAME GROUPS ITEMS, and compare TOLERANCE checks the last results.
int main() {
  std::deque<std::vector<char>> buffers;
  std::deque<std::vector<float>> outputs;
  std::vector<long> arguments;
  const auto give = [&](const void* pointer, long offset) {
    arguments.push_back(reinterpret_cast<long>(pointer));
    arguments.push_back(offset);
  };
  long wrong = -1;
  for (std::string command, name; std::cin >> command;) {
    long number = 0;
    if (command == "buffer" && std::cin >> name >> number) {
      buffers.push_back(bytes_of(name));
      give(buffers.back().data(), number);
    } else if (command == "packed" && std::cin >> number) {
      give(outputs[number].data(), kGuard);
    } else if (command == "output" && std::cin >> number) {
      outputs.emplace_back(number + 2 * kGuard, NAN);
      give(outputs.back().data(), kGuard);
    } else if (command == "integer" && std::cin >> number) {
      arguments.push_back(number);
    } else if (size_t x, y, z, items; command == "launch" && std::cin >> name >> x >> y >> z >> items) {
      if (arguments.size() > kMostArguments) std::abort();
      arguments.resize(kMostArguments);
      const auto kernel = name == "pack_0" ? pack_0 : name == "pack_1" ? pack_1 : k;
      launch(x, y, z, items, [&] { call(kernel, arguments, std::make_index_sequence<kMostArguments>()); });
      arguments.clear();
    } else if (double tolerance; command == "compare" && std::cin >> tolerance) {
      wrong = count_wrong(outputs.back(), tolerance);
    }
  }
  std::printf("%ld wrong\n", wrong), std::fflush(stdout);
  return wrong != 0;
}
